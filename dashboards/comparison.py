"""Dense against sparse in words: what intervals say, and no more than that."""

from __future__ import annotations

from dataclasses import dataclass

from dashboards.summary import SearchSummary
from dashboards.views import ChangeKind
from db.schemas import METRIC_TITLES, Interval, SkipProfile


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of dense against sparse, with the interval of its change."""

    figure: str
    dense: float | None
    sparse: float | None
    change: Interval | None
    kind: ChangeKind
    digits: int = 3
    tolerance: float | None = None
    reference: str = "dense"
    is_agreement: bool = False
    """Whether a change says that outputs differ, and nothing about which is better."""

    @property
    def reading(self) -> str:
        """What the interval says, in words."""
        if self.change is None:
            return "not measured"
        neutral = 1.0 if self.kind == "ratio" else 0.0
        if self.change.low > neutral:
            return f"better than {self.reference}"
        if self.is_agreement and self.change.high < neutral:
            return f"differs from {self.reference}"
        verb = "worse than" if self.change.high < neutral else "not told apart from"
        return f"{verb} {self.reference}"

    @property
    def is_better(self) -> bool:
        """Whether the whole interval is above dense."""
        return self.reading == "better than dense"


def comparisons(search: SearchSummary) -> tuple[Comparison, ...]:
    """Return the held-out figures of a search, empty where nothing was compared."""
    found = search.heldout
    if found is None:
        return ()
    rows = [
        Comparison(
            "acceptance length, tokens per step",
            found.acceptance_dense,
            found.acceptance_sparse,
            found.acceptance_change,
            "relative",
            tolerance=search.config.epsilon_acceptance,
        )
    ]
    if found.metric_dense is not None:
        rows.append(
            Comparison(
                METRIC_TITLES[found.metric_name],
                found.metric_dense,
                found.metric_sparse,
                found.metric_change,
                found.metric_change_kind,
                digits=4,
                tolerance=search.config.epsilon_metric,
                is_agreement=found.metric_name == "agreement",
            )
        )
    speed = (found.tokens_per_s_dense, found.tokens_per_s_sparse)
    rows.append(Comparison("decode speed, tokens/s", *speed, found.speedup, "ratio", digits=1))
    plain = "speed over dense without a drafter"
    over = found.speedup_over_autoregressive
    rows.append(Comparison(plain, None, None, over, "ratio", reference="dense without a drafter"))
    return tuple(rows)


def result_of(profile: SkipProfile) -> str:
    """Return in two words what was found, from intervals alone."""
    if profile.status == "rejected":
        return "did not hold"
    if profile.is_dense:
        return "no gain"
    found = profile.heldout
    is_sure = found is not None and (found.acceptance_change.low > 0.0 or found.speedup.low > 1.0)
    return "gain" if is_sure else "unsure gain"
