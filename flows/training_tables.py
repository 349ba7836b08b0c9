"""Trainings and comparisons of losses as tables and pages."""

from __future__ import annotations

from collections.abc import Iterator

from flows.views import ABSENT, TableView, change, number, percent, ratio
from specdec_core.config.draft_evaluation import DraftedShape
from tasks.loss_report import LossCell, LossReport
from tasks.training_report import TrainingReport, realised_of


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
    start, best = (each.acceptance(outcome.criterion) for each in (outcome.start, outcome.best))
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
        ("the same of the checkpoint kept", f"{best.length:.3f} at step {outcome.best.step}"),
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
                "no" if cell.failing_depths else "yes",
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


def loss_tables(report: LossReport) -> Iterator[tuple[str, TableView]]:
    """Yield the tables of a comparison by name."""
    yield "trainings", training_list(report)
    if report.rates:
        yield "rates", rate_table(report)
    for shape, temperature in settings_of(report):
        name = f"{shape}-t{temperature:g}"
        yield name, setting_table(report, shape, temperature)
    if report.changes:
        yield "changes", change_table(report, report.config.losses[0])
        yield "pairs", change_table(report, None)


def settings_of(report: LossReport) -> list[tuple[DraftedShape, float]]:
    """Return shapes and temperatures in the order of the tables."""
    return list(dict.fromkeys((cell.shape, cell.temperature) for cell in report.cells))


def training_list(report: LossReport) -> TableView:
    """Every training of the comparison."""
    columns = ("loss", "seed", "rate", "expected before", "kept", "step", "by", "state", "run")
    rows = tuple(
        (
            each.loss,
            str(each.seed),
            f"{each.learning_rate:.3g}",
            number(each.start_length),
            number(each.best_length),
            ABSENT if each.best_step is None else str(each.best_step),
            each.criterion or ABSENT,
            each.error or each.state or ABSENT,
            (each.run_id or ABSENT)[:12],
        )
        for each in report.trainings
    )
    return TableView("Trainings, expected acceptance length on validation data", columns, rows)


def rate_table(report: LossReport) -> TableView:
    """What each learning rate reached with the first seed."""
    rows = tuple(
        (
            each.loss,
            f"{each.learning_rate:.3g}",
            number(each.expected_length),
            "yes" if each.is_chosen else each.error or "",
        )
        for each in report.rates
    )
    columns = ("loss", "learning rate", "expected acceptance length", "chosen")
    return TableView("Learning rates, first seed", columns, rows)


def setting_table(report: LossReport, shape: DraftedShape, temperature: float) -> TableView:
    """Accepted tokens per step by loss and domain in one setting, as EAL's tables have them."""
    cells = [c for c in report.cells if (c.shape, c.temperature) == (shape, temperature)]
    domains = list(dict.fromkeys(domain for cell in cells for domain in cell.by_domain))
    columns = ("loss", *domains, "mean (sd over seeds)", "pooled [95 %]", "P25/median/P75")
    rows = tuple(
        (cell.loss, *(number(cell.by_domain.get(domain)) for domain in domains), *_ends(cell))
        for cell in cells
    )
    how = "greedy" if temperature == 0.0 else f"T={temperature:g}"
    counts = {(cell.num_seeds, cell.num_prompts) for cell in cells}
    sizes = "; ".join(f"{seeds} seeds, {prompts} prompts" for seeds, prompts in sorted(counts))
    title = f"Accepted draft tokens per step, {shape}, {how} ({sizes})"
    return TableView(title, columns, rows)


def _ends(cell: LossCell) -> tuple[str, str, str]:
    sd = "" if cell.sd is None else f" ({cell.sd:.3f})"
    pooled = cell.accepted_per_step
    return (
        f"{cell.mean:.3f}{sd}",
        f"{pooled.estimate:.3f} [{pooled.low:.3f}, {pooled.high:.3f}]",
        f"{cell.p25:g}/{cell.median:g}/{cell.p75:g}",
    )


def change_table(report: LossReport, base: str | None) -> TableView:
    """Paired changes against one loss, or of every pair."""
    shown = report.changes if base is None else report.changes_against(base)
    columns = ("loss", "against", "shape", "T", "prompts", "accepted tokens", "with bonus", "reads")
    rows = tuple(
        (
            each.loss,
            each.against,
            each.shape,
            f"{each.temperature:g}",
            str(each.num_prompts),
            change(each.accepted),
            change(each.length),
            _reading(each.length.low, each.length.high),
        )
        for each in shown
    )
    title = (
        "Paired changes of every two losses" if base is None else f"Paired changes against {base}"
    )
    return TableView(f"{title}, 95 % intervals over prompts", columns, rows)


def _reading(low: float, high: float) -> str:
    if low > 0.0:
        return "more"
    return "less" if high < 0.0 else "not told apart"


def loss_markdown(report: LossReport) -> str:
    """Return a comparison as a short section: set-up, results, changes, what the figures are."""
    config, train = report.config, report.config.base.train
    evaluation = config.base.evaluation
    seeds = ", ".join(map(str, config.seeds))
    rates = (
        f"one of {', '.join(f'{rate:g}' for rate in config.learning_rates)}, chosen per loss on "
        "validation data"
        if config.learning_rates
        else f"{train.learning_rate:g}"
    )
    setup = (
        f"The draft `{report.draft}` of `{report.target}` is trained for {train.num_epochs} epochs "
        f"on the target's responses to {train.data.num_prompts} prompts (at most "
        f"{train.data.max_new_tokens} tokens, temperature {train.data.temperature:g}), with "
        f"AdamW at a peak rate of {rates}, batches of {train.batch_size} sequences, windows of "
        f"{train.gamma} tokens, seeds {seeds}. Checkpoints are chosen by expected acceptance on "
        f"{train.num_validation} held-out prompts. Every draft then decodes "
        f"{evaluation.num_items} prompts per domain ({', '.join(evaluation.domains)}), at most "
        f"{evaluation.max_new_tokens} tokens each, under verification rules that keep the target's "
        f"output or law."
    )
    figures = (
        "**Accepted draft tokens per step**: tokens of the draft that a verify step keeps, the "
        "bonus token left out; summed over steps before dividing. **Mean**: over seeds, of the "
        "mean over domains, with the standard deviation over seeds. **Pooled**: all prompts and "
        "seeds, interval by bootstrap over prompts. **Changes** are paired by prompt, seeds kept "
        "together."
    )
    tables = dict(loss_tables(report))
    results = [view.to_markdown() for name, view in tables.items() if name != "pairs"]
    parts = [f"## Losses for {report.draft}", report.headline, setup, *results]
    if "pairs" in tables:
        parts.append(tables["pairs"].to_markdown())
    parts += [figures, "\n".join(f"- {note}" for note in report.notes)]
    return "\n\n".join(filter(None, parts))
