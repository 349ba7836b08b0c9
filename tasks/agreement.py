"""Agreement with the dense output as the metric of domains whose items have no reference.

It is taken from stored samples: evaluations themselves know of no other one, and stay what they are
whatever they are compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from db.schemas import EvaluationRow, MetricName
from db.store import Store
from specdec_core.bench.agreement import agreement_scores
from specdec_core.data.records import Suite
from specdec_core.records import EvaluationSummary, SampleResult
from tasks.answers import Answer
from tasks.jobs import JobFailure

AGREEMENT_NOTE = (
    "this domain has no task metric: agreement with the dense output took its place, which says "
    "how much outputs change and not whether they get worse"
)


def metric_name_of(suite: Suite) -> MetricName:
    """Return what stands for quality in a suite."""
    return "agreement" if suite.metric is None else "metric"


def dense_ids(samples: Sequence[SampleResult]) -> dict[str, tuple[int, ...]]:
    """Return the token ids of samples by item."""
    return {sample.item_id: sample.token_ids for sample in samples}


def with_agreement(
    summary: EvaluationSummary,
    samples: Sequence[SampleResult],
    dense: Mapping[str, Sequence[int]],
) -> EvaluationSummary:
    """Return the figures of an evaluation with its mean agreement as metric.

    Args:
        summary: Its stored figures, without a metric.
        samples: Its samples.
        dense: Token ids of the dense outputs by item.
    """
    scores = agreement_scores(dense, samples)
    return summary.model_copy(
        update={"metric": sum(scores) / len(scores), "num_scored": len(scores)}
    )


def scored_rows(
    store: Store, rows: Sequence[EvaluationRow]
) -> tuple[list[EvaluationRow], MetricName]:
    """Return the selection evaluations of one run with the metric that they lack, and its name.

    Args:
        store: Where their samples are.
        rows: Dense among them; where it is missing or failed they stay as they are.
    """
    dense = next((row for row in rows if not row.request.skip and row.summary), None)
    if dense is None or dense.summary is None or dense.summary.metric is not None:
        return list(rows), "metric"
    outputs = dense_ids(store.evaluations.samples(dense.key))
    found = []
    for row in rows:
        if row.summary is not None:
            samples = store.evaluations.samples(row.key)
            row = row.model_copy(update={"summary": with_agreement(row.summary, samples, outputs)})
        found.append(row)
    return found, "agreement"


@dataclass(slots=True)
class AgreementScores:
    """Gives the answers of one search the metric that they lack.

    Nothing can be compared before the dense target has answered every item, so answers about
    other sets wait for that, in their order; so a strategy is always told dense first. Failures
    and losses have no metric and pass, as does everything in a domain with a task metric.
    """

    store: Store
    name: MetricName
    num_items: int
    """Selection items, each of which the dense target must have answered."""
    _dense: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _waiting: list[Answer] = field(default_factory=list)

    def ready(self, answers: Sequence[Answer]) -> list[Answer]:
        """Return the answers that can be told now, with their metric."""
        if self.name == "metric":
            return list(answers)
        found = []
        for answer in answers:
            if isinstance(answer.result, JobFailure) or answer.request.mode == "loss":
                found.append(answer)
            elif answer.request.skip:
                self._waiting.append(answer)
            else:
                samples = self.store.evaluations.samples(answer.request.key)
                self._dense |= dense_ids(samples)
                found.append(self._scored(answer, answer.result))
        if len(self._dense) == self.num_items:
            for answer in self._waiting:
                assert not isinstance(answer.result, JobFailure)
                found.append(self._scored(answer, answer.result))
            self._waiting.clear()
        return found

    def score(self, key: str, summary: EvaluationSummary) -> EvaluationSummary:
        """Return the stored figures of an evaluation with the metric that they lack."""
        if self.name == "metric":
            return summary
        return with_agreement(summary, self.store.evaluations.samples(key), self._dense)

    def _scored(self, answer: Answer, summary: EvaluationSummary) -> Answer:
        return replace(answer, result=self.score(answer.request.key, summary))
