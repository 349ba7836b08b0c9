"""What the tracker shows of a run: parameters, child runs and metrics, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from db.cells import BenchmarkCell
from db.schemas import EvaluationRow, MetricName, RunRecord
from specdec_core.config.drafters import format_drafter
from specdec_core.config.dtype import type_label
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.records import EvaluationSummary
from specdec_core.search.ranking import relative_gains
from specdec_core.skip import SkipConfig

MIRRORED_ROLES = frozenset({"dense", "selection"})
"""Roles of evaluations that get a child run; benchmark cells get one each as a whole."""

_MAX_POSITIONS = 16
_CELL_METRICS = (
    "tokens_per_s",
    "acceptance_length",
    "mean_accepted_tokens",
    "hit_rate",
    "acceptance_length_on_hits",
    "decoding_efficiency",
    "accepted_p25",
    "accepted_median",
    "accepted_p75",
    "drafting_nodes_per_step",
    "candidate_nodes_per_step",
    "tokens_per_forward",
    "draft_share",
    "overhead_share",
    "drift",
    "metric",
    "speedup_of_mean_rates",
)
_VARIANT_COUNTS = ("num_evaluations", "num_evaluated", "num_memoised", "sparsity")
_OVERALL_METRICS = (
    "acceptance_length",
    "hit_rate",
    "decoding_efficiency",
    "drafting_nodes_per_step",
    "candidate_nodes_per_step",
    "tokens_per_s",
    "draft_share",
    "overhead_share",
)


@dataclass(frozen=True, slots=True)
class ChildRun:
    """One configuration or cell as the tracker shows it."""

    key: str
    name: str
    parameters: Mapping[str, Any]
    metrics: Mapping[str, float | None]
    is_failed: bool = False

    @classmethod
    def of(
        cls,
        request: EvaluationRequest,
        summary: EvaluationSummary | None,
        *,
        level: int,
        seconds: float | None,
        dense: EvaluationSummary | None = None,
        metric_name: MetricName = "metric",
    ) -> ChildRun:
        """Return the child run of one request; no summary means that it failed.

        Names are chosen so that the tracker's compare view tells configurations apart.
        """
        skip = SkipConfig.parse(request.skip)
        parameters = {
            "skip": skip.label,
            "num_units": len(skip),
            "level": level,
            "domain": request.domain,
            "target": request.target,
            "dtype": type_label(request.dtype),
            "drafter": format_drafter(request.drafter),
        }
        metrics = child_metrics(summary, seconds, dense, metric_name)
        return cls(request.key, skip.label, parameters, metrics, summary is None)

    @classmethod
    def of_row(
        cls,
        row: EvaluationRow,
        level: int,
        dense: EvaluationSummary | None,
        metric_name: MetricName = "metric",
    ) -> ChildRun:
        """Return the child run of one stored evaluation."""
        return cls.of(
            row.request,
            row.summary,
            level=level,
            seconds=row.wall_s,
            dense=dense,
            metric_name=metric_name,
        )

    @classmethod
    def of_cell(cls, cell: BenchmarkCell) -> ChildRun:
        """Return the child run of one benchmark cell."""
        parameters = {
            "skip": SkipConfig.parse(cell.skip).label,
            "domain": cell.domain,
            "target": cell.target,
            "dtype": type_label(cell.dtype),
            "drafter": cell.drafter,
            "sampling": cell.sampling or "greedy",
            "is_lossless": cell.is_lossless,
            "is_synthetic": cell.is_synthetic,
            "proof": cell.certificate.level if cell.certificate else None,
        }
        key = cell.evaluation_key or f"{cell.domain}/{cell.drafter}"
        name = f"{cell.domain} {cell.drafter}"
        return cls(key, name, parameters, cell_metrics(cell), cell.status == "failed")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Metrics of one training step as the tracker shows them."""

    step: int
    milliseconds: int
    """Since 1970."""
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TrackedModel:
    """A trained draft as the tracker registers it."""

    key: str
    """Hash of its files."""
    name: str
    folder: Path
    tags: Mapping[str, str]
    parameters: Mapping[str, str]
    metrics: Mapping[str, float | None]


def run_parameters(run: RunRecord) -> dict[str, Any]:
    """Return the parameters of a parent run: its configuration, commit and command."""
    found = {"git_commit": run.provenance.get("commit"), "command": run.provenance.get("command")}
    return {**run.config, **found}


def child_metrics(
    summary: EvaluationSummary | None,
    seconds: float | None,
    dense: EvaluationSummary | None,
    metric_name: MetricName = "metric",
) -> dict[str, float | None]:
    """Return the metrics of one configuration; empty where it failed.

    Args:
        summary: Its figures.
        seconds: In a worker.
        dense: Figures of the dense target, once they are known.
        metric_name: What the metric of both is.
    """
    if summary is None:
        return {}
    found: dict[str, float | None] = {
        "acceptance_length": summary.acceptance_length,
        metric_name: summary.metric,
        "metric_raw": summary.metric_raw,
        "seconds": seconds or None,
        "tokens_per_s": summary.tokens_per_s,
        "stop_rate": summary.stop_rate,
        "distinct_2": summary.distinct_2,
        "mean_output_tokens": summary.mean_output_tokens,
    }
    if dense is not None:
        gains = relative_gains(
            (summary.acceptance_length, summary.metric), (dense.acceptance_length, dense.metric)
        )
        found["acceptance_gain"] = gains[0]
        found[f"{metric_name}_gain"] = None if dense.metric is None else gains[1]
    return found


def cell_metrics(cell: BenchmarkCell) -> dict[str, float | None]:
    """Return the metrics of one benchmark cell; empty where it failed."""
    if cell.figures is None:
        return {}
    values = cell.figures.model_dump()
    found: dict[str, float | None] = {name: values[name] for name in _CELL_METRICS}
    for part in ("estimate", "low", "high"):
        name = "speedup" if part == "estimate" else f"speedup_{part}"
        found[name] = (values["speedup"] or {}).get(part)
    for number, share in enumerate(cell.figures.position_acceptance[:_MAX_POSITIONS], start=1):
        found[f"position_acceptance/{number:02d}"] = share
    phases = cell.figures.phases
    if phases is not None:
        found |= {f"seconds/{name}": value for name, value in phases.model_dump().items()}
    for name in ("step_ms", "token_ms"):
        for part, value in (values[name] or {}).items():
            found[f"{name}/{part}"] = value
    if cell.certificate is not None:
        counts = ("num_identical", "num_ties", "num_defects")
        found |= {name: getattr(cell.certificate, name) for name in counts}
    return found


def report_metrics(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the headline figures of the stored report of a search or a benchmark."""
    found: dict[str, float | None] = {}
    for method in summary.get("overall") or ():
        figures, drafter = method["figures"], method["drafter"]
        found |= {f"{name}/{drafter}": figures.get(name) for name in _OVERALL_METRICS}
        for part, value in (method.get("mean_speedup") or {}).items():
            if part != "confidence":
                found[f"mean_speedup_{part}/{drafter}"] = value
    if "regressions" in summary:
        found["num_regressions"] = len(summary["regressions"])
    for variant in summary.get("variants") or ():
        compared, name = variant.get("heldout") or {}, variant["name"].replace("%", "pct")
        found |= {f"{figure}/{name}": variant[figure] for figure in _VARIANT_COUNTS}
        for figure in ("acceptance_sparse", "metric_sparse", "tokens_per_s_sparse"):
            found[f"heldout_{figure}/{name}"] = compared.get(figure)
        found[f"heldout_speedup/{name}"] = (compared.get("speedup") or {}).get("estimate")
    found["cost_in_searches"] = (summary.get("cost") or {}).get("in_searches")
    answer, heldout = summary.get("answer") or {}, summary.get("heldout") or {}
    for name in ("acceptance", "metric", "gain_acceptance", "gain_metric"):
        found[f"selection_{name}"] = answer.get(name)
    changes = ("acceptance_change", "metric_change", "memory_change")
    for name in (*changes, "speedup", "useful_speedup", "speedup_over_autoregressive"):
        for part, value in (heldout.get(name) or {}).items():
            if part != "confidence":
                found[f"heldout_{name}_{part}"] = value
    costs: Mapping[str, Any] = summary.get("costs") or {}
    found |= {name: costs.get(name) for name in ("num_evaluated", "num_memoised", "wall_s")}
    used: Mapping[str, Any] = costs.get("utilisation") or {}
    if used:
        found["worker_busy_share"] = used["busy_s"] / max(used["present_s"], 1e-9)
        for name in ("idle_nothing_s", "idle_alone_s", "idle_queued_s"):
            found[f"worker_{name}"] = used[name]
    control: Mapping[str, Any] = summary.get("negative_control") or {}
    for name in ("acceptance_change", "metric_change"):
        found[f"control_{name}"] = (control.get(name) or {}).get("estimate")
    return {name: value for name, value in found.items() if value is not None}
