"""The ablation of Progressive Tree Drafting as data: which methods are points of which curve."""

from __future__ import annotations

from dataclasses import dataclass

_WIDTHS = (1, 2, 3, 4, 6)
_DEPTHS = (2, 3, 4, 6, 8)
_PERIODS = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Methods that differ in one option.

    Attributes:
        name: Stem of file names.
        title: What is varied, for people.
        axis: What the labels of the points are.
        points: Label and method text of each, in order.
        is_numeric: Whether labels are numbers of one scale.
    """

    name: str
    title: str
    axis: str
    points: tuple[tuple[str, str], ...]
    is_numeric: bool = False

    @property
    def methods(self) -> tuple[str, ...]:
        """Method texts of the points."""
        return tuple(method for _, method in self.points)


def _numbers(name: str, title: str, option: str, values: tuple[int, ...]) -> Sweep:
    points = tuple((str(value), f"ptd:{option}={value}") for value in values)
    return Sweep(name, title, option, points, is_numeric=True)


def _choices(name: str, title: str, option: str, values: tuple[str, ...]) -> Sweep:
    return Sweep(name, title, option, tuple((value, f"ptd:{option}={value}") for value in values))


PTD_SWEEPS: tuple[Sweep, ...] = (
    _numbers("width", "width w of the draft trees", "width", _WIDTHS),
    _numbers("depth", "depth d of the draft trees", "depth", _DEPTHS),
    _numbers("period", "steps between drafting forwards", "period", _PERIODS),
    _choices("init", "first tokens of the forest", "init", ("random", "ner")),
    _choices("expansion", "expansion of draft nodes", "expansion", ("greedy", "top-k", "top-p")),
    _choices("profile", "switches of the algorithm", "profile", ("default", "paper", "release")),
)
"""One option at a time, all others at their defaults.

Source: Progressive Tree Drafting, figures 5 to 8 (depth, width, initialisation, expansion).
"""

OVERHEAD_CURVES: tuple[Sweep, ...] = (
    Sweep(
        "ptd",
        "PTD",
        "w,d,trees",
        tuple(
            (f"{w},{d},{t}", f"ptd:width={w},depth={d},sub_trees={t},candidates={k},prefill=true")
            for w, d, t, k in (
                (2, 4, 1, 24),
                (2, 4, 2, 24),
                (2, 5, 2, 24),
                (2, 6, 2, 32),
                (3, 5, 3, 32),
                (4, 6, 4, 48),
            )
        ),
    ),
    Sweep(
        "lookahead",
        "Lookahead",
        "W,N,G",
        tuple(
            (f"{w},{n},{g}", f"lookahead:window={w},ngram={n},guesses={g},pool_from_prompt=true")
            for w, n, g in (
                (3, 4, 7),
                (5, 4, 7),
                (5, 5, 10),
                (7, 4, 7),
                (10, 4, 10),
                (15, 4, 15),
            )
        ),
    ),
    Sweep(
        "self-draft",
        "Self-Draft",
        "branches,length,prefix",
        tuple(
            (
                f"{b},{n},{p}",
                f"self-draft:branch_num={b},branch_len={n},context_ngram={c},prefix_len={p}",
            )
            for b, n, c, p in (
                (3, 4, 3, 2),
                (4, 4, 3, 2),
                (6, 4, 3, 2),
                (6, 6, 4, 1),
                (6, 6, 4, 2),
                (9, 6, 4, 2),
            )
        ),
    ),
)
"""Methods that draft inside the target's forward, each at several sizes.

They are compared where they process equally many nodes per step, drafting and verifying together.
None has a corpus, and each enters the prompt's n-grams into its pool, which Self-Draft always does.
Sizes are the best of a dozen tried for each method on questions of their own.

Source: Progressive Tree Drafting, table 4 (equal overhead).
"""


def ablation_methods() -> tuple[str, ...]:
    """Return every method of every curve."""
    return tuple(m for sweep in (*PTD_SWEEPS, *OVERHEAD_CURVES) for m in sweep.methods)
