"""A small finished search, made by hand: dense accepts 2.0 tokens per step and scores 0.2.

unit    acceptance  metric   changes       tolerance -5 %
a1      2.1         0.198    +5 %, -1 %    inside
a2      2.2         0.15     +10 %, -25 %  short by 20 %
a3      1.98        0.21     -1 %, +5 %    inside, on the front
a1,a3   2.16        0.204    +8 %, +2 %    inside, on the front, answer
a2,a3   failed
"""

from __future__ import annotations

from typing import Any

from db.schemas import HeldoutComparison, Interval, NegativeControl, SkipProfile
from db.store import Store
from specdec_core.config.search import SearchConfig
from specdec_core.records import StepTrace
from tasks.report import (
    Case,
    CaseCounts,
    ConfigurationRow,
    LevelTable,
    PublishedProfile,
    SearchCosts,
    SearchReport,
)
from tests.integration import store_examples

DRAFTER = "token-recycling:num_nodes=12,update=path"
DENSE = ConfigurationRow(
    skip="", key="d" * 64, level=0, rank=0, acceptance=2.0, metric=0.2, gain_acceptance=0.0,
    gain_metric=0.0, is_feasible=True, violation=0.0,
)  # fmt: skip
HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)>'


def row(skip: str, acceptance: float, metric: float, **changes: Any) -> ConfigurationRow:
    gains = {
        "gain_acceptance": round(acceptance / 2.0 - 1.0, 9),
        "gain_metric": round(metric / 0.2 - 1.0, 9),
    }
    values = {"key": skip[0] * 64, "level": 1, "rank": 1, "is_feasible": True, "violation": 0.0}
    return ConfigurationRow(
        skip=skip, acceptance=acceptance, metric=metric, **(values | gains | changes)
    )


A1 = row("a1", 2.1, 0.198, rank=2)
A2 = row("a2", 2.2, 0.15, rank=3, is_feasible=False, violation=0.2)
A3 = row("a3", 1.98, 0.21, is_frontier=True)
A1_A3 = row("a1,a3", 2.16, 0.204, level=2, is_frontier=True)
A2_A3 = ConfigurationRow(skip="a2,a3", level=2, rank=0, error="MemoryError: too large")


def heldout(**changes: Any) -> HeldoutComparison:
    values: dict[str, Any] = {
        "num_items": 64,
        "acceptance_dense": 2.0,
        "acceptance_sparse": 2.1,
        "acceptance_change": Interval(estimate=0.05, low=0.02, high=0.08),
        "metric_dense": 0.2,
        "metric_sparse": 0.19,
        "metric_change": Interval(estimate=-0.05, low=-0.12, high=0.02),
        "tokens_per_s_dense": 40.0,
        "tokens_per_s_sparse": 44.0,
        "speedup": Interval(estimate=1.1, low=1.04, high=1.15),
        "speedup_over_autoregressive": Interval(estimate=1.6, low=1.5, high=1.7),
        "guards_dense": {"distinct_2": 0.9, "longest_repeat": 3.0},
        "guards_sparse": {"distinct_2": 0.88, "longest_repeat": 3.5},
    }
    return HeldoutComparison(**(values | changes))


def cases() -> tuple[Case, ...]:
    def case(item_id: str, verdict: str, scores: tuple[float, float]) -> Case:
        return Case.model_validate(
            {
                "item_id": item_id,
                "verdict": verdict,
                "prompt": "Wo ist der Bahnhof?",
                "reference": "Where is the station?",
                "dense_text": "Where is the train?",
                "sparse_text": "Where is the station?",
                "dense_score": scores[0],
                "sparse_score": scores[1],
            }
        )

    return (
        case("de-1", "better", (0.25, 1.0)),
        case("de-2", "same", (0.5, 0.5)),
        case("de-3", "worse", (0.5, 0.125)),
    )


CONTROL = NegativeControl(
    domain="qa",
    suite="qa",
    suite_hash="q" * 64,
    skip="a1,a3",
    item_ids=("q1", "q2"),
    acceptance_dense=1.5,
    acceptance_sparse=1.2,
    acceptance_change=Interval(estimate=-0.2, low=-0.3, high=-0.1),
    metric_dense=0.5,
    metric_sparse=0.25,
    metric_change=Interval(estimate=-0.5, low=-0.75, high=-0.1),
    same_beginning=Interval(estimate=0.4, low=0.2, high=0.6),
    verdict="harmed",
    reason="the metric fell",
)


def report(run_id: str, **changes: Any) -> SearchReport:
    """The report of the search above."""
    values: dict[str, Any] = {
        "run_id": run_id,
        "verdict": "published",
        "headline": "translation on pypi:gemma3-270m: a1,a3 holds (published)",
        "config": SearchConfig(domain="translation", drafter=DRAFTER),
        "target": "pypi:gemma3-270m",
        "target_identity": "a" * 64,
        "num_layers": 18,
        "dtype": "bfloat16",
        "device": "cpu",
        "license_note": "Gemma terms of use",
        "suite": "wmt-small",
        "suite_hash": "s" * 64,
        "selection_ids": ("s1", "s2"),
        "heldout_ids": ("de-1", "de-2", "de-3"),
        "study": "translation-abc",
        "log_file": "/tmp/run.log",
        "dense": DENSE,
        "answer": A1_A3,
        "compared": A1_A3,
        "selection_metric_change": Interval(estimate=0.02, low=-0.1, high=0.15),
        "levels": (
            LevelTable(number=1, rows=(A3, A1, A2)),
            LevelTable(number=2, rows=(A1_A3, A2_A3)),
        ),
        "ablation": (A1, A2, A3),
        "front": (A3, A1_A3),
        "stop_reason": "depth reached",
        "num_configurations": 4,
        "heldout": heldout(),
        "negative_control": CONTROL,
        "cases": cases(),
        "case_counts": CaseCounts(better=3, same=60, worse=1),
        "profile": PublishedProfile(
            id=1, version=1, skip="a1,a3", is_dense=False, reason="a1,a3 holds", is_new=True
        ),
        "advice": ("Tried 4 configurations.", "Nearest misses: a2 (short by 20.0%)."),
        "notes": ("2 items without reference were left out",),
        "costs": SearchCosts(
            num_evaluated=5, num_memoised=1, num_failed=1, worker_s=90.0, wall_s=150.0
        ),
    }
    return SearchReport(**(values | changes))


def no_gain(run_id: str, **changes: Any) -> SearchReport:
    """A search of the same space that keeps the dense target."""
    profile = PublishedProfile(
        id=1, version=1, skip="", is_dense=True, reason="no gain: nothing beats dense", is_new=True
    )
    values: dict[str, Any] = {
        "verdict": "no gain",
        "answer": DENSE,
        "compared": A2,
        "front": (DENSE,),
        "profile": profile,
    }
    return report(run_id, **(values | changes))


def seed(store: Store, make: Any = report, profile: dict[str, Any] | None = None) -> SkipProfile:
    """Store a finished search with its profile; return the profile."""
    run = store_examples.make_run(
        store,
        config=SearchConfig(domain="translation", drafter=DRAFTER).model_dump(mode="json"),
        provenance={
            "commit": "0123abcd",
            "is_dirty": False,
            "code_version": "c0de",
            "command": "specdec search translation",
            "python": "3.11.7",
        },
        flow_run_id=None,
    )
    values = {
        "skip": "a1,a3",
        "drafter": DRAFTER,
        "heldout": heldout(),
        "reason": "a1,a3 holds",
    } | (profile or {})
    stored = store.profiles.publish(store_examples.profile(run.id, **values))
    made: SearchReport = make(run.id)
    shown = made.profile.model_copy(update={"id": stored.id, "version": stored.version})
    summary = made.model_copy(update={"profile": shown}).model_dump(mode="json")
    store.runs.update(run.id, status="completed", summary=summary, tracker_id="f" * 32)
    _seed_samples(store, run.id)
    return stored


def _seed_samples(store: Store, run_id: str) -> None:
    """Held-out samples: four dense and four sparse steps of depth 2.

    Dense accepts 0, 1, 0, 1 and sparse 2, 1, 0, 1 draft tokens.
    """
    for role, skip, accepted in (
        ("heldout-dense", "", (0, 1, 0, 1)),
        ("heldout-sparse", "a1,a3", (2, 1, 0, 1)),
    ):
        asked = store_examples.request(skip=skip, item_ids=("de-1",), is_timed=True)
        trace = StepTrace(
            drafted=(12,) * 4,
            depth=(2,) * 4,
            accepted=accepted,
            committed=tuple(count + 1 for count in accepted),
        )
        sample = store_examples.sample("de-1", trace=trace)
        store.evaluations.put(asked, store_examples.result(asked, samples=(sample,)))
        store.runs.link(run_id, asked.key, role)
