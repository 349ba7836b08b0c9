"""Trainings as tables and pages."""

from __future__ import annotations

from collections.abc import Iterator

from flows.views import ABSENT, TableView, number, percent, ratio
from tasks.training_report import TrainingReport, realised_of, step_text


def training_tables(report: TrainingReport) -> Iterator[tuple[str, TableView]]:
    """Yield the tables of a training by name."""
    yield "training", summary_table(report)
    yield "validation", validation_table(report)
    if report.evaluation is not None:
        yield "depth", depth_table(report)
        yield "decoding", decoding_table(report)


def summary_table(report: TrainingReport) -> TableView:
    """Data, training and result in numbers."""
    data, outcome, one = report.data, report.outcome, report.checkpoint
    start, best, last = (
        each.acceptance(outcome.criterion) for each in (outcome.start, outcome.best, outcome.last)
    )
    rows = [
        ("target", report.target),
        ("draft", report.draft),
        ("loss", report.losses),
        ("prompts, samples", f"{data.num_prompts}, {data.num_samples}"),
        ("response tokens", str(data.num_response_tokens)),
        ("data, template", f"{data.key[:12]}, {data.template_hash[:12]}"),
        ("steps, epochs", f"{outcome.num_steps}, {outcome.num_epochs}"),
        ("trained tokens per second", number(outcome.tokens_per_s, 0)),
        ("expected acceptance length before", number(start.length)),
        (
            "the same of the checkpoint kept",
            f"{best.length:.3f} at step {step_text(outcome.best.step)}",
        ),
        ("the same at the last step", f"{last.length:.3f}"),
        ("checkpoint chosen by", f"{outcome.criterion} acceptance"),
        ("realised acceptance length", number(one.realised_length)),
        ("state", f"{one.state}: {one.reason or 'not evaluated'}"),
        ("checkpoint", f"{one.id}, {one.content_hash[:12]}"),
        ("exported to", ", ".join(one.exports) or ABSENT),
    ]
    return TableView(f"Training of {report.draft}", ("what", "value"), tuple(rows))


def validation_table(report: TrainingReport) -> TableView:
    """Every validation: losses beside the acceptance that counts."""
    columns = (
        "step",
        "phase",
        "training loss",
        "validation loss",
        "expected length, greedy",
        "expected length, sampling",
        "learning rate",
        "kept",
    )
    rows = tuple(
        (
            str(point.step),
            str(point.phase),
            number(point.loss, 4),
            number(point.validation_loss, 4),
            number(point.greedy.length),
            number(point.sampling.length),
            ABSENT if point.learning_rate is None else f"{point.learning_rate:.3g}",
            "yes" if point.step == report.checkpoint.step else "",
        )
        for point in report.curve
        if point.greedy is not None and point.sampling is not None
    )
    return TableView("Validations", columns, rows)


def depth_table(report: TrainingReport) -> TableView:
    """Expected and realised acceptance of chains side by side, by depth."""
    assert report.evaluation is not None
    one = report.checkpoint
    found = realised_of(report.evaluation, one.criterion, report.config.train.temperature)
    by_depth = found.by_depth if found else ()
    at_steps = found.expected if found else ()
    rows = []
    for depth in range(max(len(one.expected_acceptance), len(by_depth))):
        expected, at_step, realised = (
            values[depth] if depth < len(values) else None
            for values in (one.expected_acceptance, at_steps, by_depth)
        )
        gap = None if at_step is None or realised is None else realised - at_step
        rows.append(
            (
                str(depth + 1),
                percent(expected),
                percent(at_step),
                percent(realised),
                ABSENT if gap is None else f"{gap:+.1%}",
            )
        )
    title = f"Accepted, given the depth before ({one.criterion}, chains)"
    columns = ("depth", "expected, validation", "expected at the steps", "realised", "gap")
    return TableView(title, columns, tuple(rows))


def decoding_table(report: TrainingReport) -> TableView:
    """Every cell of the evaluation."""
    assert report.evaluation is not None
    columns = (
        "domain",
        "shape",
        "temperature",
        "accepted tokens/step",
        "P25",
        "median",
        "P75",
        "speed-up [95 %]",
        "agrees",
        "error",
    )
    rows = []
    for cell in report.evaluation.cells:
        figures = cell.figures
        quartiles = (
            (figures.accepted_p25, figures.accepted_median, figures.accepted_p75)
            if figures
            else (None, None, None)
        )
        rows.append(
            (
                cell.domain,
                cell.shape,
                f"{cell.temperature:g}",
                number(cell.accepted_per_step),
                *(number(each, 0) for each in quartiles),
                ratio(cell.speedup),
                ABSENT if cell.error else cell.agreement,
                cell.error or "",
            )
        )
    return TableView("In the decode loop, bonus tokens left out", columns, tuple(rows))


def notes_of(report: TrainingReport) -> tuple[str, ...]:
    """Return what there is to say of a training and of its evaluation."""
    return (*report.notes, *(report.evaluation.notes if report.evaluation else ()))


def training_markdown(report: TrainingReport) -> str:
    """Return the page of a training."""
    parts = [f"## {report.draft} under {report.losses}", report.headline]
    parts += [view.to_markdown() for _, view in training_tables(report)]
    notes = notes_of(report)
    if notes:
        parts.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts)
