"""From a held-out comparison to a published profile: what holds, what does not, and why."""

from __future__ import annotations

from dataclasses import dataclass

from db.schemas import (
    HeldoutComparison,
    Interval,
    MetricChangeKind,
    MetricName,
    ProfileScores,
    ProfileStatus,
    SkipProfile,
)
from db.store import Store
from specdec_core.config.search import SearchConfig
from specdec_core.search.outcome import Ranked, SearchOutcome
from specdec_core.search.ranking import SMALL_METRIC
from tasks.agreement import metric_name_of
from tasks.heldout import Heldout
from tasks.prepare import Workload
from tasks.profiles import present_cause
from tasks.report import PublishedProfile, Verdict

_NAMES: dict[MetricName, str] = {
    "metric": "the metric",
    "agreement": "agreement with the dense output",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether the sparse configuration becomes the active profile."""

    verdict: Verdict
    reason: str

    @property
    def is_sparse(self) -> bool:
        """True if the sparse configuration is published."""
        return self.verdict == "published"


def decide(outcome: SearchOutcome, heldout: Heldout | None, config: SearchConfig) -> Decision:
    """Return what the held-out items allow.

    The sparse answer is published if its held-out metric and acceptance themselves reach the
    tolerances, not only the upper ends of their intervals, it is not slower than dense beyond
    doubt, it gains acceptance or speed, and its outputs are not degenerate. Selection figures
    alone never publish anything.
    """
    if not outcome.answer.skip.units:
        return Decision("no gain", "no gain: nothing beats the dense target on selection items")
    label = str(outcome.answer.skip)
    if heldout is None:
        return Decision(
            "did not hold", f"{label} was not published: no held-out item could be evaluated"
        )
    holds, reason = judge(label, heldout, config)
    return Decision("published" if holds else "did not hold", reason)


def judge(label: str, heldout: Heldout, config: SearchConfig) -> tuple[bool, str]:
    """Return whether a skip set may be published on these held-out figures, and why.

    Args:
        label: The skip set, for the sentence.
        heldout: Its comparison with dense.
        config: The search, with its tolerances.
    """
    faults = [*_faults(heldout.comparison, config), *heldout.guards]
    if faults:
        return False, f"{label} did not hold on held-out items: {faults[0]}"
    found, metric = heldout.comparison, heldout.comparison.metric_change
    change = (
        f", {found.metric_name} {_in_words(metric, found.metric_change_kind)}" if metric else ""
    )
    return True, (
        f"{label} holds on {found.num_items} held-out items: acceptance "
        f"{_in_words(found.acceptance_change)}{change}, speed x{found.speedup.estimate:.2f} "
        f"({found.speedup.low:.2f} to {found.speedup.high:.2f})"
    )


def _in_words(change: Interval, kind: MetricChangeKind = "relative") -> str:
    estimate, low, high = (_signed(end, kind) for end in (change.estimate, change.low, change.high))
    return f"{estimate} ({low} to {high})"


def _signed(value: float, kind: MetricChangeKind) -> str:
    return f"{value:+.1%}" if kind == "relative" else f"{value:+.4f}"


def _faults(found: HeldoutComparison, config: SearchConfig) -> list[str]:
    """Every rule that the comparison breaks, in words."""
    faults = []
    if found.metric_dense is not None and found.metric_dense < SMALL_METRIC:
        faults.append(
            f"the dense target itself scores {found.metric_dense:.4f}: there is no quality that "
            "skipping could be seen to keep"
        )
    metric, kind = found.metric_change, found.metric_change_kind
    acceptance, speed = found.acceptance_change, found.speedup
    if metric is not None and metric.estimate < config.epsilon_metric:
        faults.append(
            f"{_NAMES[found.metric_name]} changed by {_in_words(metric, kind)}, below the "
            f"tolerance of {_signed(config.epsilon_metric, kind)}"
        )
    if acceptance.estimate < config.epsilon_acceptance:
        faults.append(
            f"acceptance changed by {_in_words(acceptance)}, below the tolerance of "
            f"{config.epsilon_acceptance:+.1%}"
        )
    if speed.high < 1.0:
        faults.append(
            f"it is slower than dense: x{speed.estimate:.2f} ({speed.low:.2f} to {speed.high:.2f})"
        )
    if acceptance.estimate <= 0.0 and speed.estimate <= 1.0:
        faults.append(
            f"neither acceptance ({acceptance.estimate:+.1%}) nor speed (x{speed.estimate:.2f}) "
            "gained over dense"
        )
    return faults


def publish(
    store: Store,
    workload: Workload,
    config: SearchConfig,
    run_id: str,
    *,
    outcome: SearchOutcome,
    heldout: Heldout | None,
    decision: Decision,
    hardware: str,
) -> PublishedProfile:
    """Make the decided profile the active one, or with ``activate=False`` a validated one.

    A sparse answer that did not hold is kept as a rejected version with its figures. Where an
    active version says exactly this already, on the same figures, it stays and nothing is
    written; one that is validated is activated, unless it did not hold when it was measured last:
    figures that were measured before are no reason to trust it again.
    """

    def profile(member: Ranked, status: ProfileStatus) -> SkipProfile:
        return SkipProfile(
            target=workload.target.reference,
            target_identity=workload.target.identity,
            num_layers=workload.target.num_layers,
            dtype=workload.target.dtype,
            domain=workload.suite.domain,
            drafter=config.drafter,
            skip=str(member.skip),
            prefill=config.prefill if member.skip.units else "sparse",
            status=status,
            is_dense=not member.skip.units,
            run_id=run_id,
            suite_hash=workload.suite.content_hash,
            template_hash=workload.template_hash,
            hardware=hardware,
            selection=ProfileScores(
                acceptance_length=member.score.acceptance,
                metric=member.score.metric,
                dense_acceptance_length=outcome.dense.score.acceptance,
                dense_metric=outcome.dense.score.metric,
                metric_name=metric_name_of(workload.suite),
            ),
            heldout=heldout.comparison if heldout else None,
            tolerance_acceptance=config.epsilon_acceptance,
            tolerance_metric=config.epsilon_metric,
            reason=decision.reason,
        )

    wanted_status: ProfileStatus = "active" if config.activate else "validated"
    wanted = profile(outcome.answer if decision.is_sparse else outcome.dense, wanted_status)
    cause = present_cause(decision.reason, run_id)
    standing = _standing(store, wanted)
    if standing is not None:
        assert standing.id is not None  # a stored one has its id
        doubt = _doubt(store, standing)
        if standing.status == "validated" and config.activate and not doubt:
            standing = store.profiles.move(standing.id, "active", cause)
        return _published(standing, is_new=False, doubt=doubt)
    if decision.verdict == "did not hold":
        store.profiles.publish(profile(outcome.answer, "rejected"), cause)
    return _published(store.profiles.publish(wanted, cause), is_new=True)


def _standing(store: Store, wanted: SkipProfile) -> SkipProfile | None:
    """Return a version that says the same and is active or waits to be, the active one first."""
    for status in ("active", "validated"):
        for stored in store.profiles.list(
            wanted.domain, wanted.target_identity, wanted.drafter, status, limit=None
        ):
            if _says_the_same(stored, wanted):
                return stored
    return None


def _says_the_same(active: SkipProfile, wanted: SkipProfile) -> bool:
    differing = {"id", "version", "run_id", "created_at", "target", "status"}
    return active.model_dump(exclude=differing) == wanted.model_dump(exclude=differing)


def _doubt(store: Store, profile: SkipProfile) -> str:
    """Return what speaks against a stored version since it was published; empty if nothing."""
    measured = store.profiles.verifications(profile.id or 0)
    if not measured or measured[-1].holds:
        return ""
    kept = "it stays active" if profile.status == "active" else "it was not activated"
    return (
        f"; {kept}, though it did not hold when it was measured last ({measured[-1].reason}): "
        f"`specdec profiles verify {profile.id}` measures it again"
    )


def _published(profile: SkipProfile, *, is_new: bool, doubt: str = "") -> PublishedProfile:
    assert profile.id is not None
    assert profile.version is not None
    return PublishedProfile(
        id=profile.id,
        version=profile.version,
        skip=profile.skip,
        is_dense=profile.is_dense,
        reason=profile.reason + doubt,
        is_new=is_new,
        status=profile.status,
    )
