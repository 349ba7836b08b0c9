"""Flat parameters of a training: names, presets, comparisons, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from specdec_core.config.losses import LossOptions, join_losses, split_losses
from specdec_core.config.training import TrainConfig, format_draft, parse_draft
from specdec_core.config.training_run import (
    FLAT,
    PRESETS,
    LossComparisonConfig,
    TrainingRunConfig,
    field_of,
    losses_of,
    training_config,
)
from specdec_core.errors import ConfigError


def run_of(preset: str | None = None, **given: Any) -> TrainingRunConfig:
    found = training_config(preset, given)
    assert isinstance(found, TrainingRunConfig)
    return found


def compared(preset: str | None = None, **given: Any) -> LossComparisonConfig:
    found = training_config(preset, given)
    assert isinstance(found, LossComparisonConfig)
    return found


def test_every_flat_name_reaches_its_field() -> None:
    for name in FLAT:
        record, field = field_of(name)
        assert field in record.model_fields, name
    found = run_of(
        batch_size=8, data_batch_size=9, eval_seed=3, data_seed=2, seed=1, eval_num_items=4
    )
    assert (found.train.batch_size, found.train.data.batch_size) == (8, 9)
    assert (found.train.seed, found.train.data.seed, found.evaluation.seed) == (1, 2, 3)
    assert found.evaluation.num_items == 4


def test_the_evaluation_follows_the_training() -> None:
    found = run_of(target="hf:org/name", dtype="float32", gamma=5)
    evaluation = found.evaluation
    assert (evaluation.target, evaluation.dtype, evaluation.gamma) == ("hf:org/name", "float32", 5)


def test_nothing_given_is_the_default_and_comes_back_equal() -> None:
    found = run_of(loss=None, draft=None)
    assert found.train == TrainConfig()
    assert TrainingRunConfig.model_validate(found.model_dump(mode="json")) == found


@pytest.mark.parametrize(
    ("preset", "losses"),
    [
        ("kl", "kl"),
        ("eal", "kl+0.1eal"),
        ("wtv", "wtv"),
        ("wtv-grpo", "wtv/wtv+0.1grpo"),
        ("eal-grpo", "kl+0.1eal/kl+0.1eal+0.1grpo"),
    ],
)
def test_presets_name_losses_of_six_epochs_in_all(preset: str, losses: str) -> None:
    train = run_of(preset).train
    assert losses_of(train) == losses
    assert (train.num_epochs, train.second_epochs) == (6, 3)


def test_losses_for_sampling_are_trained_on_sampled_responses_unless_it_is_said_otherwise() -> None:
    presets = ("kl", "eal", "wtv", "wtv-grpo", "eal-grpo")
    found = {preset: run_of(preset).train.data.temperature for preset in presets}
    assert found == {"kl": 0.0, "eal": 0.0, "wtv": 1.0, "wtv-grpo": 1.0, "eal-grpo": 0.0}
    assert run_of("wtv", data_temperature=0.0).train.data.temperature == 0.0
    assert compared("wtv", seeds=[0, 1]).base.train.data.temperature == 1.0


@pytest.mark.parametrize(
    ("draft", "rate"),
    [
        ("pruned:num_layers=2", 1e-3),
        ("eagle", 1e-3),
        ("medusa", 1e-3),
        ("model:model=path:/somewhere", 1e-4),
    ],
)
def test_the_peak_rate_is_that_of_the_drafts_kind_unless_it_is_given(
    draft: str, rate: float
) -> None:
    train = run_of("wtv", draft=draft).train
    assert (train.learning_rate, train.batch_size) == (rate, 16)
    assert run_of("wtv", draft=draft, learning_rate=5e-4).train.learning_rate == 5e-4
    # What is stored says the number, and a training that names it is the same one.
    assert train.content()["learning_rate"] == rate
    assert run_of("wtv", draft=draft, learning_rate=rate).train.content() == train.content()
    found = compared(losses="kl,wtv", draft=draft)
    assert {each.train.learning_rate for each in found.variants()} == {rate}


OPTIONS: dict[str, Any] = {
    "gamma": 5,
    "temperature": 0.7,
    "lk_eta": 2.0,
    "lk_scope": "position",
    "depth_decay": 0.5,
    "grpo_groups": 2,
    "grpo_windows": 3,
    "grpo_clip_advantage": 2.0,
    "grpo_clip_ratio": 0.1,
}


def test_options_of_losses_reach_both_phases() -> None:
    assert OPTIONS.keys() == LossOptions.model_fields.keys()
    given = {"loss": "lk", "second_loss": "lk+0.1grpo", "draft": "medusa:num_heads=5"}
    first, second = run_of(**given, **OPTIONS).train.loss_configs
    assert [term.name for term in first.terms] == ["lk-lambda"]
    assert [term.name for term in second.terms] == ["lk-lambda", "grpo"]
    for losses in (first, second):
        assert losses.model_dump(include=OPTIONS.keys()) == OPTIONS
    assert second.group_span == 3 + 5 - 1


def test_a_comparison_gives_options_to_the_losses_that_read_them() -> None:
    found = compared(losses="kl,wtv/wtv+0.1grpo", grpo_windows=4, draft="medusa", depth_decay=0.5)
    kl, grpo = found.variants()
    assert (kl.train.grpo_windows, kl.train.depth_decay) == (8, 0.5)
    assert (grpo.train.grpo_windows, grpo.train.depth_decay) == (4, 1.0)
    # What it is by itself, by its content too.
    alone = run_of("kl", draft="medusa", depth_decay=0.5)
    assert kl.train.content() == alone.train.content()


def test_several_losses_seeds_or_rates_make_a_comparison() -> None:
    found = compared("compare-losses", losses=["kl,wtv", "wtv/wtv+.1grpo"], seeds="0,1")
    assert found.losses == ("kl", "wtv", "wtv/wtv+0.1grpo")
    assert found.seeds == (0, 1)
    assert len(compared("compare-losses").losses) == len(PRESETS["compare-losses"]["losses"])
    assert compared("wtv-grpo", seeds=[0, 1, 2]).losses == ("wtv/wtv+0.1grpo",)
    assert compared("kl", learning_rates=["1e-4,1e-3"]).learning_rates == (1e-4, 1e-3)
    # The loss of a preset gives way to losses that are named.
    assert compared("wtv-grpo", losses=["kl"]).base.train.second_loss is None


def test_a_second_phase_that_would_take_every_epoch_gets_half_of_them() -> None:
    for num_epochs, second in ((2, 1), (3, 1), (4, 3), (6, 3)):
        assert run_of("wtv-grpo", num_epochs=num_epochs).train.second_epochs == second
    # What is asked for stays, and one epoch cannot be shared.
    assert run_of("wtv-grpo", num_epochs=3, second_epochs=3).train.second_epochs == 3
    assert run_of("wtv-grpo", num_epochs=1).train.second_epochs == 3
    assert run_of("wtv", num_epochs=3).train.second_epochs == 3


def test_a_comparison_shares_epochs_where_a_loss_has_two_phases() -> None:
    found = compared("compare-losses", num_epochs=3)
    by_loss = {losses_of(each.train): each.train for each in found.variants()}
    assert set(by_loss) == set(found.losses)
    assert {train.second_epochs for loss, train in by_loss.items() if "/" in loss} == {1}
    # A training of one phase is what it is by itself, by its content too.
    alone = run_of("kl", num_epochs=3, seed=2).train
    assert by_loss["kl"].content() == alone.content()
    given = compared("compare-losses", num_epochs=3, second_epochs=2)
    assert {each.train.second_epochs for each in given.variants()} == {2}
    for train in (each.train for each in given.variants() if each.train.seed == 2):
        is_same = train.content() == by_loss[losses_of(train)].content()
        assert is_same == (train.second_loss is None)


def test_a_comparison_has_a_training_per_loss_seed_and_rate() -> None:
    found = compared(losses="kl,wtv/wtv+0.1grpo", seeds="0,7", learning_rates="1e-4,1e-3")
    trained = [
        (losses_of(each.train), each.train.seed, each.train.learning_rate)
        for each in found.variants()
    ]
    assert trained == [
        (loss, seed, rate)
        for loss in ("kl", "wtv/wtv+0.1grpo")
        for seed in (0, 7)
        for rate in (1e-4, 1e-3)
    ]
    plain = compared(losses="kl", learning_rate=5e-4)
    assert [each.train.learning_rate for each in plain.variants()] == [5e-4]


def test_a_comparison_of_one_seed_has_the_one_that_is_given() -> None:
    found = compared(losses="kl,wtv", seed=5)
    assert found.seeds == (5,)
    assert [each.train.seed for each in found.variants()] == [5, 5]
    assert run_of("kl", seed=2**31 - 1).train.seed == 2**31 - 1


@pytest.mark.parametrize(
    ("draft", "given", "window"),
    [
        ("medusa", {}, 4),
        ("medusa:num_heads=1", {}, 1),
        ("medusa:num_heads=3", {"gamma": 2}, 2),
        ("medusa:num_heads=9", {}, 7),
        ("eagle:version=3,num_steps=2", {}, 7),
        ("pruned", {"gamma": 9}, 9),
    ],
)
def test_windows_are_no_longer_than_a_draft_proposes(
    draft: str, given: dict[str, Any], window: int
) -> None:
    losses = {"loss": "kl", "second_loss": "wtv+0.1grpo", "draft": draft}
    run = run_of(**losses, **given)
    assert run.evaluation.gamma == window
    assert [each.gamma for each in run.train.loss_configs] == [window, window]
    # Said or not, it is the same training.
    assert run.train.content() == run_of(**losses, gamma=window).train.content()


def test_the_rates_of_a_sweep_lie_around_those_that_are_usual() -> None:
    low, high = run_of(sweep_trials=2).sweep_rates
    for draft in ("pruned", "model:model=path:/somewhere"):
        usual = run_of(draft=draft).train.learning_rate
        assert low * 10 <= usual <= high / 10


def test_a_loss_that_is_named_takes_the_place_of_both_phases_of_a_preset() -> None:
    assert losses_of(run_of("wtv-grpo", loss="kl").train) == "kl"


def test_losses_and_drafts_have_one_text() -> None:
    for text in ("kl", "wtv/wtv+0.1grpo"):
        assert join_losses(*split_losses(text)) == text
    for text in ("pruned", "pruned:layers=0/7/15", "model:model=hf:a/b", "eagle:version=3"):
        assert format_draft(parse_draft(text)) == text
    assert format_draft(parse_draft("pruned:num_layers=5")) == "pruned"


@pytest.mark.parametrize(
    ("preset", "given", "reason"),
    [
        ("oak", {}, "preset 'oak' is unknown: choose one of kl, eal, wtv"),
        (None, {"colour": 1}, "parameter 'colour' is unknown"),
        (None, {"num_prompts": "x"}, r"train\.data\.num_prompts='x' is not valid"),
        (None, {"eval_num_items": 0}, r"evaluation\.num_items=0 is not valid"),
        (None, {"losses": ["kl"], "loss": "kl"}, "loss and losses are both given"),
        (None, {"losses": "kl,kl"}, "give each once"),
        (None, {"losses": ["a/b/c"]}, "not one or two phases"),
        (None, {"losses": ["wtv/"]}, "not one or two phases"),
        (None, {"losses": ["/wtv"]}, "not one or two phases"),
        (None, {"losses": ""}, "losses '' are not one or two phases"),
        (None, {"losses": "kl,"}, "losses '' are not one or two phases"),
        (None, {"losses": "kl", "seeds": "-1"}, "seed=-1 is not valid"),
        (None, {"losses": "kl", "learning_rates": "0.1,5"}, r"learning_rate=5\.0 is not valid"),
        (None, {"losses": "kl", "learning_rates": "0"}, r"learning_rate=0\.0 is not valid"),
        (None, {"losses": ["magic"]}, "loss 'magic' in 'magic' is unknown"),
        (None, {"draft": "oak"}, "draft 'oak' is not valid"),
        (None, {"draft": "pruned:layers=0,7,15"}, "draft option '7' in .* lists with slashes"),
        (None, {"draft": "pruned:3"}, "draft option '3' in 'pruned:3' is not understood"),
        (None, {"draft": "eagle:3"}, "draft option '3' in 'eagle:3' is not understood"),
        (None, {"draft": "eagle:version=1,version=3"}, "'version=3' in .* write option=value once"),
        (None, {"draft": "pruned:layers=0/7,num_layers=3"}, "give layers or num_layers"),
        ("kl", {"seeds": [0], "sweep_trials": 3}, "leave sweep_trials out"),
        ("kl", {"lk_eta": 2.0}, "lk_eta 2.0 is read by lk-lambda alone, not by kl: leave it out"),
        ("wtv", {"grpo_windows": 4}, "grpo_windows 4 is read by grpo alone, not by wtv"),
        ("wtv", {"draft": "medusa", "depth_decay": 0.5}, "depth_decay 0.5 is read by ce, kl, lk-"),
        (
            None,
            {"losses": "kl,wtv/kl+0.1wtv", "lk_scope": "position"},
            "lk_scope position is read by lk-lambda alone, not by kl, wtv/kl.0.1wtv",
        ),
        ("kl", {"depth_decay": 0.5}, "a draft 'pruned' is trained at one: leave it out, or train"),
        ("kl", {"draft": "eagle", "depth_decay": 0.5}, "a draft 'eagle' is trained at one"),
        # Nothing is said of the rate, which follows from the draft.
        ("kl", {"gamma": 0}, "^parameter train.gamma=0 is not valid: Input [a-z ]* equal to 1$"),
        # What another parameter takes the place of.
        ("compare-losses", {"loss": "kl"}, "loss is given, but preset compare-losses names losses"),
        (
            "compare-losses",
            {"second_loss": "kl"},
            "second_loss is given, but preset compare-losses",
        ),
        (None, {"losses": "kl", "second_loss": "kl"}, "second_loss and losses are both given"),
        ("compare-losses", {"seed": 3}, "seed is given, but preset compare-losses names seeds"),
        ("kl", {"seed": 3, "seeds": "0,1"}, "seed and seeds are both given: give one of them"),
        (
            "kl",
            {"learning_rate": 1e-4, "learning_rates": "1e-4,1e-3"},
            "learning_rate and learning_rates are both given",
        ),
        ("wtv", {"second_epochs": 2}, "second_epochs 2 is given, but wtv has no second phase"),
        (None, {"losses": "kl,wtv", "second_epochs": 2}, "but kl, wtv has no second phase"),
        (None, {"draft": "eagle:num_steps=3"}, "num_steps=3 was given, but version 1 has no use"),
        (
            None,
            {"draft": "eagle:version=3,feature_noise=0"},
            "feature_noise=0.0 was given, but version 3 has no use for it: .* version=1",
        ),
        (
            None,
            {"draft": "eagle:version=3,regression_weight=0.5"},
            "regression_weight=0.5 was given, but version 3 has no use",
        ),
        # Four heads by default, each of one token.
        (
            None,
            {"draft": "medusa", "gamma": 7},
            "gamma 7 is given, but a draft 'medusa' proposes one",
        ),
        (
            None,
            {"draft": "medusa:num_heads=1", "gamma": 2},
            "per head, at most 1: leave gamma out",
        ),
        # Numbers that a store cannot hold.
        (None, {"draft": "eagle:regression_weight=inf"}, "should be a finite number"),
        (None, {"draft": "eagle:feature_noise=nan"}, "should be a finite number"),
        (None, {"weight_decay": float("inf")}, "should be a finite number"),
        (None, {"clip_norm": float("inf")}, "should be a finite number"),
        (None, {"seed": 2**31}, r"train\.seed=2147483648 is not valid"),
        (None, {"data_seed": 2**31}, r"train\.data\.seed=2147483648 is not valid"),
        (None, {"eval_seed": 2**31}, r"evaluation\.seed=2147483648 is not valid"),
        (None, {"losses": "kl", "seeds": f"0,{2**31}"}, "seed=2147483648 is not valid"),
        (None, {"hidden": "taps", "taps": "2/5/2"}, "taps 2/5/2 store a hidden state twice"),
        (None, {"losses": "kl+0.1eal,0.1eal+kl"}, "give each once"),
        ("kl", {"sweep_rates": "1e-4,1e-3"}, "sweep_rates given without sweep_trials"),
        (
            "eal",
            {"sweep_trials": 0, "sweep_epochs": 1, "sweep_weights": "0.1,1"},
            "sweep_epochs, sweep_weights given without sweep_trials",
        ),
    ],
)
def test_what_cannot_work_is_refused(
    preset: str | None, given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        training_config(preset, given)
