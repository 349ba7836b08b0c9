"""From evaluated drafts to the tables of a comparison of losses; numbers only, no models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from db.schemas import Interval
from specdec_core.bench.statistics import pooled_ratio, relative_change_of_pooled_ratios
from specdec_core.config.draft_evaluation import DraftedShape
from specdec_core.errors import MeasurementError
from tasks.draft_report import DraftCell, DraftEvaluation, PromptAcceptance
from tasks.heldout_costs import to_interval
from tasks.loss_report import LossCell, LossChange

Setting = tuple[DraftedShape, float]
"""Shape and temperature."""
Prompt = tuple[str, str]
"""Domain and item."""


@dataclass(slots=True)
class _Arm:
    """What one loss made of the prompts of one setting, by seed."""

    seeds: dict[int, dict[Prompt, PromptAcceptance]] = field(default_factory=dict)

    def sums(self, prompts: Sequence[Prompt]) -> tuple[list[float], list[float]]:
        """Accepted tokens and steps of each prompt, all seeds together."""
        accepted = [
            float(sum(sum(found[prompt].accepted) for found in self.seeds.values()))
            for prompt in prompts
        ]
        steps = [
            float(sum(found[prompt].num_steps for found in self.seeds.values()))
            for prompt in prompts
        ]
        return accepted, steps


def compare_arms(
    evaluations: Mapping[tuple[str, int], DraftEvaluation],
) -> tuple[tuple[LossCell, ...], tuple[LossChange, ...], tuple[str, ...]]:
    """Return cells, paired changes and notes of evaluated drafts.

    A setting takes the prompts that every seed of every loss answered, so that all figures are of
    the same prompts; those left out are counted in the notes. A cell without a result is noted,
    and its training has no part in a setting that it has no result in at all.

    Args:
        evaluations: By loss and seed; losses in the order of the tables.
    """
    cells: list[LossCell] = []
    changes: list[LossChange] = []
    notes = list(_missing(evaluations))
    for setting, arms in _settings(evaluations).items():
        prompts, num_left_out = _shared(arms)
        name = _name(*setting)
        if num_left_out:
            notes.append(f"{name}: {num_left_out} prompts lack a result of some training")
        if not prompts:
            notes.append(f"{name}: no prompt was answered by all trainings")
            continue
        cells += [_cell(loss, setting, arm, prompts) for loss, arm in arms.items()]
        changes += [
            _change(later, earlier, setting, arms, prompts)
            for earlier, later in combinations(arms, 2)
        ]
    return tuple(cells), tuple(changes), tuple(notes)


def _settings(
    evaluations: Mapping[tuple[str, int], DraftEvaluation],
) -> dict[Setting, dict[str, _Arm]]:
    found: dict[Setting, dict[str, _Arm]] = defaultdict(dict)
    for (loss, seed), evaluation in evaluations.items():
        for cell in evaluation.cells:
            answered = _answered(cell)
            if answered:
                arm = found[cell.shape, cell.temperature].setdefault(loss, _Arm())
                arm.seeds.setdefault(seed, {}).update(answered)
    return found


def _answered(cell: DraftCell) -> dict[Prompt, PromptAcceptance]:
    return {(cell.domain, one.item_id): one for one in cell.samples if one.num_steps}


def _missing(evaluations: Mapping[tuple[str, int], DraftEvaluation]) -> Iterator[str]:
    """Say which cells have no result."""
    for (loss, seed), evaluation in evaluations.items():
        for cell in evaluation.cells:
            if not _answered(cell):
                where = f"{_name(cell.shape, cell.temperature)}, {cell.domain}"
                why = cell.error or "no prompt took a step"
                yield f"{where}: {loss} seed {seed}: no result ({why})"


def _name(shape: DraftedShape, temperature: float) -> str:
    return f"{shape}, temperature {temperature:g}"


def _shared(arms: Mapping[str, _Arm]) -> tuple[list[Prompt], int]:
    """Prompts that all have, in order, and how many only some have."""
    known = [set(found) for arm in arms.values() for found in arm.seeds.values()]
    shared, union = set.intersection(*known), set.union(*known)
    return sorted(shared), len(union) - len(shared)


def _cell(loss: str, setting: Setting, arm: _Arm, prompts: Sequence[Prompt]) -> LossCell:
    by_domain: dict[str, list[Prompt]] = defaultdict(list)
    for prompt in prompts:
        by_domain[prompt[0]].append(prompt)
    per_step = [
        count
        for found in arm.seeds.values()
        for prompt in prompts
        for count in found[prompt].accepted
    ]
    p25, median, p75 = (float(value) for value in np.percentile(per_step, (25, 50, 75)))
    accepted, steps = arm.sums(prompts)
    return LossCell(
        loss=loss,
        shape=setting[0],
        temperature=setting[1],
        num_seeds=len(arm.seeds),
        num_prompts=len(prompts),
        num_steps=int(sum(steps)),
        accepted_per_step=to_interval(pooled_ratio(accepted, steps)),
        by_domain={domain: _ratio(arm, some) for domain, some in by_domain.items()},
        seed_means=tuple(_seed_means(arm, by_domain)),
        p25=p25,
        median=median,
        p75=p75,
    )


def _seed_means(arm: _Arm, by_domain: Mapping[str, Sequence[Prompt]]) -> Iterator[float]:
    for seed, found in arm.seeds.items():
        single = _Arm({seed: found})
        ratios = [_ratio(single, some) for some in by_domain.values()]
        yield sum(ratios) / len(ratios)


def _ratio(arm: _Arm, prompts: Sequence[Prompt]) -> float:
    accepted, steps = arm.sums(prompts)
    return sum(accepted) / sum(steps)


def _change(
    loss: str,
    against: str,
    setting: Setting,
    arms: Mapping[str, _Arm],
    prompts: Sequence[Prompt],
) -> LossChange:
    before, after = arms[against].sums(prompts), arms[loss].sums(prompts)
    accepted: Interval | None = None
    with suppress(MeasurementError):
        accepted = to_interval(relative_change_of_pooled_ratios(before, after))
    return LossChange(
        loss=loss,
        against=against,
        shape=setting[0],
        temperature=setting[1],
        num_prompts=len(prompts),
        accepted=accepted,
        length=to_interval(
            relative_change_of_pooled_ratios(_with_bonus(before), _with_bonus(after))
        ),
    )


def _with_bonus(sums: tuple[list[float], list[float]]) -> tuple[list[float], list[float]]:
    accepted, steps = sums
    return [a + s for a, s in zip(accepted, steps, strict=True)], steps
