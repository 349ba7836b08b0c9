"""What a training run is refused for before its data are made, without reading weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.config.training_run import TrainingRunConfig
from specdec_core.errors import ConfigError
from specdec_core.models.reference import resolve_model
from tasks.draft_runs import run_training
from tasks.draft_stages import Stages
from tasks.evaluator import ModelEvaluatorFactory
from tasks.pool import pool_factory
from tasks.training_check import check_training_run
from tasks.training_setup import TrainingSetup
from tests.draft_prompts import settings_of
from tests.tiny_training_runs import tiny_run


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny target, its prompts, and models that cannot draft for it or be one."""
    root = tmp_path_factory.mktemp("models")
    tiny_run(root)
    shutil.copytree(root / "target", root / "swapped")
    file = root / "swapped" / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["k"], vocabulary["q"] = vocabulary["q"], vocabulary["k"]
    file.write_text(json.dumps(content))
    for name, changed in {
        "few": {"vocab_size": 64},
        "short": {"max_position_embeddings": 95},
        "small": {"max_position_embeddings": 64},
    }.items():
        shutil.copytree(root / "target", root / name)
        configuration = root / name / "config.json"
        described = json.loads(configuration.read_text())
        configuration.write_text(json.dumps({**described, **changed}))
    return root


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(tmp_path)


def check(config: TrainingRunConfig, settings: Settings) -> None:
    target = resolve_model(config.train.data.target, settings.cache_dir)
    check_training_run(config, target, settings, is_inline=True)


@pytest.mark.parametrize(
    ("draft", "changes"),
    [
        ("pruned:layers=0/2", {}),
        ("pruned:num_layers=3,vocab_size=64", {"num_validation": 13}),
        ("model:model=path:{}/target", {"micro_batch_tokens": 96}),
        ("eagle:version=3,vocab_size=64", {"gamma": 12}),
        ("pruned:layers=0/2", {"preset": "wtv-grpo", "gamma": 6, "grpo_windows": 7}),
        ("medusa:num_heads=2", {"gamma": None, "max_new_tokens": 2}),
        ("medusa", {"sweep_trials": 2, "sweep_rates": "0.001,1", "sweep_epochs": 2}),
        # Without an evaluation, what it would be made of does not count.
        ("eagle", {"evaluate": False, "eval_domains": ["nonsense"]}),
    ],
)
def test_a_run_that_can_work_passes_though_the_weights_are_no_weights(
    models: Path, settings: Settings, tmp_path: Path, draft: str, changes: dict[str, Any]
) -> None:
    shutil.copytree(models, tmp_path / "models")
    for file in (tmp_path / "models").rglob("*.safetensors"):
        file.write_bytes(b"nothing")
    where = tmp_path / "models"
    check(tiny_run(where, draft=draft.format(where), **changes), settings)


@pytest.mark.parametrize(
    ("preset", "changes", "reason"),
    [
        ("kl", {"draft": "pruned:layers=0/99"}, "layers 0/99 cannot be kept of a target with"),
        ("kl", {"draft": "pruned:num_layers=4"}, "4 blocks cannot be kept of a target with 3"),
        ("kl", {"draft": "pruned:layers=0,vocab_size=99999"}, "a draft vocabulary of 99999 ids"),
        ("kl", {"draft": "eagle:version=3,vocab_size=99999"}, "a draft vocabulary of 99999 ids"),
        ("kl", {"draft": "model:model=path:/nowhere"}, "/nowhere has no config.json"),
        ("kl", {"draft": "model:model=path:{}/swapped"}, "swapped has another tokenizer than"),
        ("kl", {"draft": "model:model=path:{}/few"}, "/few embeds 64 token ids, but the tokenizer"),
        ("kl", {"draft": "model:model=path:{}/short"}, "95 positions, but .* may have 96 tokens"),
        ("kl", {"target": "path:{}/small", "max_new_tokens": 64}, "64 leave no room for a prompt"),
        (
            "kl",
            {"target": "path:{}/small", "draft": "pruned:layers=0", "eval_max_new_tokens": 40},
            "up to 40 new ones, more than the 64 positions of target",
        ),
        ("kl", {"num_validation": 14}, "num_validation 14 holds out all of 14 prompts"),
        ("kl", {"micro_batch_tokens": 95}, "micro_batch_tokens 95 cannot hold a sequence of 96"),
        ("kl", {"gamma": 13}, "gamma 13 tokens fits no response of at most max_new_tokens 12"),
        # Eight windows of 6 tokens, each a token after the one before; eleven of 3.
        ("wtv-grpo", {"gamma": 6}, "grpo in 'wtv.0.1grpo' compares 8 windows over 13 tokens"),
        ("wtv-grpo", {"grpo_windows": 11}, "compares 11 windows over 13 tokens, which no response"),
        ("wtv-grpo", {"second_epochs": 2}, "2 of 2 epochs are of the second loss"),
        ("kl", {"num_workers": 2}, "2 workers cannot train in one process"),
        ("kl", {"draft": "eagle", "sharding": "fsdp"}, "drafts of kind eagle have none"),
        ("kl", {"draft": "medusa", "sharding": "fsdp"}, "drafts of kind medusa have none"),
        ("kl", {"eval_domains": ["nonsense"]}, "domain 'nonsense' is unknown"),
        ("kl", {"eval_domains": ["qa@nosuch"]}, "suite 'nosuch' does not exist"),
        ("kl", {"eval_domains": ["math@humaneval"]}, "has no questions of domain 'math'"),
        ("kl", {"eval_shapes": ["tree"], "eval_branching": [0]}, "branching"),
        ("kl", {"dtype": "float8"}, "dtype 'float8' is not supported"),
        (
            "kl",
            {"sweep_trials": 2, "sweep_weights": "0.1,1"},
            "'kl' is one loss, .* leave sweep_weights out",
        ),
        (
            "kl",
            {"sweep_trials": 2, "sweep_rates": "0.1,0.01"},
            "sweep_rates .* give two rising numbers above 0",
        ),
        ("kl", {"sweep_trials": 2, "sweep_rates": "0.9,50"}, "learning_rate=50.0 is not valid"),
        ("eal", {"sweep_trials": 2, "sweep_weights": "1,5000"}, "has weight 5000: give one above"),
        (
            "wtv-grpo",
            {"sweep_trials": 2, "sweep_epochs": 1},
            "trials that cannot be trained: 1 of 1 epochs are of the second loss",
        ),
    ],
)
def test_what_would_fail_late_is_refused(
    models: Path, settings: Settings, preset: str, changes: dict[str, Any], reason: str
) -> None:
    places = {name: changes[name].format(models) for name in {"draft", "target"} & changes.keys()}
    changes = {**changes, **places}
    config = tiny_run(models, preset, **changes)
    with pytest.raises(ConfigError, match=reason):
        check(config, settings)


def test_a_comma_in_the_home_folder_is_refused_as_no_drafter_can_name_it(
    models: Path, tmp_path: Path
) -> None:
    config, settings = tiny_run(models), settings_of(tmp_path / "a,b")
    with pytest.raises(ConfigError, match="is not understood"):
        check(config, settings)
    check(config.model_copy(update={"evaluate": False}), settings)


def test_a_refused_run_leaves_nothing_in_the_store(
    models: Path, settings: Settings, store: Store
) -> None:
    setup = TrainingSetup(
        settings=settings,
        store=store,
        start_pool=pool_factory(settings, ModelEvaluatorFactory(settings), is_inline=True),
        is_inline=True,
    )
    with pytest.raises(ConfigError, match="domain 'nonsense' is unknown"):
        run_training(tiny_run(models, eval_domains=["nonsense"]), setup, Stages())
    assert store.runs.list() == []
    assert not (settings.home_dir / "draft-data").exists()


def test_what_is_decoded_must_not_be_learned(
    models: Path, settings: Settings, tmp_path: Path
) -> None:
    """The same questions in other words of JSON; case and punctuation do not matter."""
    suite, prompts = tmp_path / "mails.jsonl", tmp_path / "prompts.jsonl"
    unscored = {"reference": None, "metric": None}
    asked = [f"What is in mail number {number}?" for number in ("one", "two", "three")]
    suite.write_text(
        "".join(
            json.dumps({"id": f"m/{i}", "domain": "mails", "prompt": text, **unscored}) + "\n"
            for i, text in enumerate(asked)
        )
    )
    others = [f"Write about the {name}." for name in ("sea", "sky", "sun", "moon")]
    changes = {"prompts": [str(prompts)], "eval_domains": [f"mails@{suite}"]}

    def write(texts: list[str]) -> None:
        rows = [{"id": f"p/{i}", "domain": "mails", "prompt": t} for i, t in enumerate(texts)]
        prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))

    write(others)
    check(tiny_run(models, **changes), settings)
    write([*others, "what is in MAIL number two"])
    with pytest.raises(ConfigError, match=r"1 of the 3 prompts .* 'What is in mail number two\?'"):
        check(tiny_run(models, **changes), settings)
    check(tiny_run(models, **changes, evaluate=False), settings)
