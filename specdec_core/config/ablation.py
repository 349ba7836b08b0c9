"""The ablation of Progressive Tree Drafting as data: which methods are points of which curve."""

from __future__ import annotations

from dataclasses import dataclass

_WIDTHS = (1, 2, 3, 4, 6, 8)
_DEPTHS = (2, 3, 4, 5, 6, 8)
_PERIODS = (1, 2, 3, 4)


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
        "w,d",
        tuple(
            (f"{w},{d}", f"ptd:width={w},depth={d},candidates={k}")
            for w, d, k in ((2, 4, 12), (3, 5, 24), (4, 6, 48), (4, 7, 96))
        ),
    ),
    Sweep(
        "lookahead",
        "Lookahead",
        "W,N",
        tuple(
            (f"{w},{n}", f"lookahead:window={w},ngram={n},guesses={w}")
            for w, n in ((3, 4), (5, 5), (7, 5), (10, 5), (15, 5))
        ),
    ),
    Sweep(
        "self-draft",
        "Self-Draft",
        "branches,length",
        tuple(
            (f"{b},{n}", f"self-draft:branch_num={b},branch_len={n}")
            for b, n in ((3, 5), (6, 6), (9, 6), (12, 7))
        ),
    ),
)
"""Methods that draft inside the target's forward, each at several sizes.

They are compared where they process equally many nodes per step, drafting and verifying together.

Source: Progressive Tree Drafting, table 4 (equal overhead).
"""


def ablation_methods() -> tuple[str, ...]:
    """Return every method of every curve."""
    return tuple(m for sweep in (*PTD_SWEEPS, *OVERHEAD_CURVES) for m in sweep.methods)
