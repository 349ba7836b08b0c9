"""A search report made by hand: figures that cannot be mistaken for each other."""

from db.schemas import HeldoutComparison, Interval
from specdec_core.config.search import SearchConfig
from tasks.report import (
    Case,
    ConfigurationRow,
    LevelTable,
    PublishedProfile,
    SearchCosts,
    SearchReport,
)

DENSE = ConfigurationRow(
    skip="", level=0, rank=0, acceptance=2.0, metric=0.2, gain_acceptance=0.0, gain_metric=0.0,
    is_feasible=True, violation=0.0,
)  # fmt: skip
GOOD = ConfigurationRow(
    skip="a3", level=1, rank=1, acceptance=2.4, metric=0.21, gain_acceptance=0.2,
    gain_metric=0.05, is_feasible=True, violation=0.0, is_frontier=True,
)  # fmt: skip
NEAR = ConfigurationRow(
    skip="a1", level=1, rank=2, acceptance=2.1, metric=0.18, gain_acceptance=0.05,
    gain_metric=-0.1, violation=0.05,
)  # fmt: skip
FAR = ConfigurationRow(
    skip="a2", level=1, rank=3, acceptance=1.0, metric=0.1, gain_acceptance=-0.5,
    gain_metric=-0.5, violation=0.9,
)  # fmt: skip
FAILED = ConfigurationRow(skip="a4", level=1, rank=0, error="MemoryError: too large")
HELDOUT = HeldoutComparison(
    num_items=64,
    acceptance_dense=2.05,
    acceptance_sparse=2.255,
    acceptance_change=Interval(estimate=0.1, low=0.05, high=0.15),
    metric_dense=0.1467,
    metric_sparse=0.1422,
    metric_change=Interval(estimate=-0.031, low=-0.08, high=0.02),
    tokens_per_s_dense=41.5,
    tokens_per_s_sparse=47.3,
    speedup=Interval(estimate=1.14, low=1.1, high=1.18),
    speedup_over_autoregressive=Interval(estimate=1.62, low=1.5, high=1.7),
    useful_tokens_per_s_dense=40.0,
    useful_tokens_per_s_sparse=44.0,
    useful_speedup=Interval(estimate=1.1, low=1.05, high=1.15),
    memory_dense_bytes=300e6,
    memory_sparse_bytes=285e6,
    memory_change=Interval(estimate=-0.05, low=-0.051, high=-0.049),
    guards_dense={"distinct_2": 0.9},
    guards_sparse={"distinct_2": 0.88},
)
CASE = Case(
    item_id="de-7",
    verdict="worse",
    prompt="Guten | Morgen",
    reference="Good morning",
    dense_text="Good morning",
    sparse_text="```Morning```",
    dense_score=1.0,
    sparse_score=0.25,
)


def make_report(heldout: HeldoutComparison | None = HELDOUT) -> SearchReport:
    return SearchReport(
        run_id="run-1",
        verdict="published",
        headline="translation: skipping a3 speeds decoding up by 14 %",
        config=SearchConfig(domain="translation"),
        target="pypi:gemma3-270m",
        target_identity="f" * 64,
        num_layers=18,
        dtype="bfloat16",
        device="cpu",
        license_note="",
        suite="builtin/translation",
        suite_hash="e" * 64,
        selection_ids=("de-1", "de-2"),
        heldout_ids=("de-7",),
        study="study",
        log_file="/home/logs/run-1.log",
        dense=DENSE,
        answer=GOOD,
        compared=GOOD,
        levels=(LevelTable(number=1, rows=(GOOD, NEAR, FAR, FAILED)),),
        ablation=(NEAR, FAR, GOOD),
        front=(GOOD,),
        stop_reason="depth reached",
        num_configurations=3,
        heldout=heldout,
        guards=(),
        cases=(CASE,) if heldout else (),
        profile=PublishedProfile(
            id=5, version=2, skip="a3", is_dense=False, reason="a3 holds", is_new=True
        ),
        advice=("Tried 3 configurations.",),
        notes=(),
        costs=SearchCosts(
            num_evaluated=4, num_memoised=1, num_failed=1, worker_s=10.0, wall_s=12.5
        ),
    )
