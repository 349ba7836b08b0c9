"""What the tracker shows of a run: parameters, child runs and metrics, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from db.schemas import BenchmarkCell, EvaluationRow, RunRecord
from specdec_core.config.drafters import format_drafter
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.records import EvaluationSummary
from specdec_core.search.ranking import Objective
from specdec_core.skip import SkipConfig

MIRRORED_ROLES = frozenset({"dense", "selection"})
"""Roles of evaluations that get a child run; benchmark cells get one each as a whole."""


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
            "drafter": format_drafter(request.drafter),
        }
        metrics = child_metrics(summary, seconds, dense)
        return cls(request.key, skip.label, parameters, metrics, summary is None)

    @classmethod
    def of_row(cls, row: EvaluationRow, level: int, dense: EvaluationSummary | None) -> ChildRun:
        """Return the child run of one stored evaluation."""
        return cls.of(row.request, row.summary, level=level, seconds=row.wall_s, dense=dense)

    @classmethod
    def of_cell(cls, cell: BenchmarkCell) -> ChildRun:
        """Return the child run of one benchmark cell."""
        parameters = {
            "skip": SkipConfig.parse(cell.skip).label,
            "domain": cell.domain,
            "target": cell.target,
            "drafter": cell.drafter,
        }
        key = cell.evaluation_key or f"{cell.domain}/{cell.drafter}"
        name = f"{cell.domain} {cell.drafter}"
        return cls(key, name, parameters, cell_metrics(cell), cell.status == "failed")


def run_parameters(run: RunRecord) -> dict[str, Any]:
    """Return the parameters of a parent run: its configuration, commit and command."""
    found = {"git_commit": run.provenance.get("commit"), "command": run.provenance.get("command")}
    return {**run.config, **found}


def child_metrics(
    summary: EvaluationSummary | None, seconds: float | None, dense: EvaluationSummary | None
) -> dict[str, float | None]:
    """Return the metrics of one configuration; empty where it failed."""
    if summary is None:
        return {}
    found: dict[str, float | None] = {
        "acceptance_length": summary.acceptance_length,
        "metric": summary.metric,
        "metric_raw": summary.metric_raw,
        "seconds": seconds or None,
        "tokens_per_s": summary.tokens_per_s,
        "stop_rate": summary.stop_rate,
        "distinct_2": summary.distinct_2,
        "mean_output_tokens": summary.mean_output_tokens,
    }
    if dense is not None:
        gains = Objective.gains(
            (summary.acceptance_length, summary.metric), (dense.acceptance_length, dense.metric)
        )
        found["acceptance_gain"] = gains[0]
        found["metric_gain"] = None if dense.metric is None else gains[1]
    return found


def cell_metrics(cell: BenchmarkCell) -> dict[str, float | None]:
    """Return the metrics of one benchmark cell; empty where it failed."""
    if cell.figures is None:
        return {}
    speedup = cell.figures.speedup
    return {
        "tokens_per_s": cell.figures.tokens_per_s,
        "acceptance_length": cell.figures.acceptance_length,
        "metric": cell.figures.metric,
        "speedup": speedup.estimate if speedup else None,
        "speedup_low": speedup.low if speedup else None,
        "speedup_high": speedup.high if speedup else None,
        "num_identical": cell.figures.num_identical,
        "num_ties": cell.figures.num_ties,
        "num_defects": cell.figures.num_defects,
    }


def report_metrics(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the headline figures of a stored search report; empty for other summaries."""
    found: dict[str, float | None] = {}
    answer, heldout = summary.get("answer") or {}, summary.get("heldout") or {}
    for name in ("acceptance", "metric", "gain_acceptance", "gain_metric"):
        found[f"selection_{name}"] = answer.get(name)
    for name in ("acceptance_change", "metric_change", "speedup", "speedup_over_autoregressive"):
        for part, value in (heldout.get(name) or {}).items():
            if part != "confidence":
                found[f"heldout_{name}_{part}"] = value
    costs: Mapping[str, Any] = summary.get("costs") or {}
    found |= {name: costs.get(name) for name in ("num_evaluated", "num_memoised", "wall_s")}
    return {name: value for name, value in found.items() if value is not None}
