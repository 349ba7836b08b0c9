"""Denominators foreseen without a model, and means of sums."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from specdec_core.config.losses import READERS, LossConfig, parse_loss
from specdec_core.config.training import EagleDraft, MedusaDraft, TrainConfig
from specdec_core.drafts.building import new_trainable
from specdec_core.models.reference import ResolvedModel, resolve_model
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import DraftOutput
from specdec_core.training.losses.terms import TERMS
from specdec_core.training.objective import ForeseenDraft, Objective, objectives_of
from specdec_core.training.target import FrozenTarget
from tests.tiny_training import make_batch, make_samples, objective, target_head, tiny_draft
from tests.tiny_training_data import settings_of, write_target


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> tuple[ResolvedModel, FrozenTarget]:
    folder = tmp_path_factory.mktemp("target")
    settings = settings_of(folder)
    model = resolve_model(f"path:{write_target(folder / 'model')}", settings.cache_dir)
    return model, FrozenTarget.load(model, dtype="float32", device="cpu", settings=settings)


class Unforeseen:
    """The same draft without its foresight."""

    def __init__(self, draft: Any) -> None:
        self.module, self.taps, self._draft = draft.module, draft.taps, draft

    def forward(self, batch: TrainingBatch) -> DraftOutput:
        output: DraftOutput = self._draft.forward(batch)
        return output

    def save(self, folder: Path) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    "shape",
    [
        EagleDraft(version=1),
        EagleDraft(version=1, regression_weight=0.0),
        EagleDraft(version=3, num_steps=3),
        MedusaDraft(num_heads=3),
    ],
)
def test_heads_foresee_what_their_passes_cover(
    shape: EagleDraft | MedusaDraft, target: tuple[ResolvedModel, FrozenTarget]
) -> None:
    model, frozen = target
    draft = new_trainable(shape, model)
    batch = make_batch(make_samples(5), ["s000", "s003", "s004"])
    hidden, taps = frozen.batch_states(batch.input_ids, batch.lengths, draft.taps)
    batch = replace(batch, hidden=hidden, taps=taps)
    goal = Objective(LossConfig(terms=parse_loss("kl+0.1eal"), gamma=3), frozen.head)
    foreseen = goal.count(draft, [batch])
    assert isinstance(draft, ForeseenDraft)
    assert foreseen == goal.count(Unforeseen(draft), [batch])
    assert foreseen["windows"] > 0
    has_auxiliary = isinstance(shape, EagleDraft) and shape.version == 1
    has_auxiliary = has_auxiliary and shape.regression_weight > 0  # type: ignore[union-attr]
    assert ("auxiliary/regression" in foreseen) == has_auxiliary


def test_windows_of_heads_end_at_the_last_one(target: tuple[ResolvedModel, FrozenTarget]) -> None:
    model, frozen = target
    draft = new_trainable(MedusaDraft(num_heads=2), model)
    samples = make_samples(5)
    batch = make_batch(samples, sorted(samples))
    hidden, _ = frozen.batch_states(batch.input_ids, batch.lengths, ())
    batch = replace(batch, hidden=hidden)
    config = TrainConfig(draft=MedusaDraft(num_heads=2), loss="wtv")
    (goal,) = objectives_of(config, frozen.head)
    sums, counts = goal.measure(draft.forward(batch), batch, None)
    assert {name for name in sums if name.startswith("sampling/")} == {"sampling/0", "sampling/1"}
    # Windows of 2 tokens in a response of n: n - 1, each behind a row that both heads read.
    responses = [len(s.token_ids) - s.num_prompt for s in samples.values()]
    assert min(s.num_prompt for s in samples.values()) >= 2
    assert counts["windows"] == sum(n - 1 for n in responses)


def test_options_of_the_training_are_those_of_its_losses() -> None:
    given: dict[str, Any] = {"gamma": 3, "temperature": 0.5, "grpo_windows": 4}
    config = TrainConfig(loss="lk", second_loss="wtv+0.1grpo", lk_scope="position", **given)
    first, second = objectives_of(config, target_head())
    shared = {**given, "lk_scope": "position"}
    assert first.config == LossConfig(terms=parse_loss("lk"), **shared)
    assert second.config == LossConfig(terms=parse_loss("wtv+0.1grpo"), **shared)
    assert (first.needs_reference, second.needs_reference) == (False, True)


def test_depths_weigh_where_losses_are_means_over_positions() -> None:
    by_position = {name for name, term in TERMS.items() if term.unit in {"positions", "labels"}}
    assert READERS["depth_decay"] == by_position


def test_counts_of_batches_add_up(tmp_path: Path) -> None:
    draft, samples, goal = tiny_draft(tmp_path), make_samples(3), objective("kl+0.1eal")
    parts = [make_batch(samples, [name]) for name in sorted(samples)]
    counts = goal.count(draft, parts)
    num_responses = [len(s.token_ids) - s.num_prompt for s in samples.values()]
    assert counts["positions/0"] == sum(num_responses)
    # Windows of 3 tokens in a response of n: n - 2.
    assert counts["windows"] == sum(n - 2 for n in num_responses)
    assert goal.count(draft, [make_batch(samples, sorted(samples))]) == counts


def test_shares_of_parts_are_the_mean_over_all(tmp_path: Path) -> None:
    draft, samples, goal = tiny_draft(tmp_path), make_samples(3), objective("kl+0.1eal")
    batches = [make_batch(samples, ["s000"]), make_batch(samples, ["s001", "s002"])]
    counts = goal.count(draft, batches)
    sums: dict[str, float] = {}
    total = 0.0
    for batch in batches:
        share, found = goal.loss(draft.forward(batch), batch, counts, reference=None, seed=(0, 0))
        total += float(share.detach())
        sums = {name: sums.get(name, 0.0) + value for name, value in found.items()}
    loss, terms = goal.means(sums, counts)
    assert loss == pytest.approx(total, abs=1e-6)
    assert loss == pytest.approx(terms["kl"] + 0.1 * terms["eal"])
    whole = make_batch(samples, sorted(samples))
    alone, _ = goal.loss(draft.forward(whole), whole, counts, reference=None, seed=(0, 0))
    assert float(alone.detach()) == pytest.approx(total, abs=1e-6)


def test_nothing_counted_means_nothing(tmp_path: Path) -> None:
    goal = objective()
    assert goal.count(tiny_draft(tmp_path), []) == {}
    assert goal.means({}, {}) == (0.0, {})


def test_groups_follow_the_samples_and_the_step(tmp_path: Path) -> None:
    """The same micro-batch of the same step draws the same groups, another step others."""
    samples = make_samples(6)
    draft, goal = tiny_draft(tmp_path), objective("grpo", grpo_groups=1, grpo_windows=2)
    batch = make_batch(samples, sorted(samples))
    counts = goal.count(draft, [batch])
    output = draft.forward(batch)
    other = tiny_draft(tmp_path, seed=5).forward(batch)

    def value(step: int) -> float:
        with torch.no_grad():
            loss, _ = goal.loss(output, batch, counts, reference=other, seed=(0, step))
        return float(loss)

    assert value(3) == value(3)
    assert len({value(step) for step in range(6)}) > 1
