"""Comparisons of losses as tables and pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flows.views import ABSENT, TableView, change, number
from specdec_core.config.draft_evaluation import DraftedShape
from tasks.loss_report import START, LossCell, LossChange, LossReport
from tasks.training_report import step_text


def loss_tables(report: LossReport) -> Iterator[tuple[str, TableView]]:
    """Yield the tables of a comparison by name."""
    yield "trainings", training_list(report)
    if report.rates:
        yield "rates", rate_table(report)
    for shape, temperature in settings_of(report):
        name = f"{shape}-t{temperature:g}"
        yield name, setting_table(report, shape, temperature)
    first = report.config.losses[0]
    for name, base in (("start", START), ("changes", first)):
        if changes := report.changes_against(base):
            yield name, change_table(changes, f"Paired changes against {base}")
    if others := [each for each in report.changes if each.against not in (START, first)]:
        yield "pairs", change_table(others, "Paired changes of the other pairs")


def settings_of(report: LossReport) -> list[tuple[DraftedShape, float]]:
    """Return shapes and temperatures in the order of the tables."""
    return list(dict.fromkeys((cell.shape, cell.temperature) for cell in report.cells))


def training_list(report: LossReport) -> TableView:
    """Every training of the comparison."""
    validated = ("expected before", "kept", "last", "step", "by")
    columns = ("loss", "seed", "rate", *validated, "state", "run")
    rows = tuple(
        (
            each.loss,
            str(each.seed),
            f"{each.learning_rate:.3g}",
            number(each.start_length),
            number(each.best_length),
            number(each.last_length),
            ABSENT if each.best_step is None else step_text(each.best_step),
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
            ABSENT if each.best_step is None else step_text(each.best_step),
            "yes" if each.is_chosen else each.error or "",
        )
        for each in report.rates
    )
    columns = ("loss", "learning rate", "expected acceptance length", "step", "chosen")
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
    sizes = "; ".join(
        f"{seeds} seed{'s' if seeds > 1 else ''}, {prompts} prompts"
        for seeds, prompts in sorted(counts)
    )
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


def change_table(changes: Iterable[LossChange], title: str) -> TableView:
    """Paired changes, without and with the bonus token."""
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
            each.reading,
        )
        for each in changes
    )
    return TableView(f"{title}, 95 % intervals over prompts", columns, rows)


def _epochs(report: LossReport) -> str:
    whole = report.config.base.train.num_epochs
    text = f"{whole} epoch" if whole == 1 else f"{whole} epochs"
    for training in report.trainings:
        ends = {point.phase: point.step for point in training.curve}
        if 2 in ends:
            second = round(whole * (1 - ends.get(1, 0) / ends[2]))
            return f"{text}, the last {second} under the second loss where there are two,"
    return text


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
        f"The draft `{report.draft}` of `{report.target}` is trained for {_epochs(report)} "
        f"on the target's responses to {train.data.num_prompts} prompts (at most "
        f"{train.data.max_new_tokens} tokens, temperature {train.data.temperature:g}), with "
        f"AdamW at a peak rate of {rates}, batches of {train.batch_size} sequences, windows of "
        f"{train.window} tokens, seeds {seeds}. Checkpoints are chosen by expected acceptance on "
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
    if config.compare_start:
        figures += " **Start** is the draft before training; it decodes the same prompts."
    results = [view.to_markdown() for _, view in loss_tables(report)]
    notes = "\n".join(f"- {note}" for note in report.all_notes)
    parts = [f"## Losses for {report.draft}", report.headline, setup, *results, figures, notes]
    return "\n\n".join(filter(None, parts))
