"""A real target that overflows without one of its blocks: the search records it and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from db.store import Store
from specdec_core.config.search import SearchConfig
from specdec_core.config.settings import Settings
from specdec_core.models.tiny import write_tiny_checkpoint
from tasks.evaluator import ModelEvaluatorFactory
from tasks.pool import pool_factory
from tasks.search import run_search


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four blocks of which block 1 takes away what block 0 added, and block 2 overflows on it.

    The feed-forward halves of blocks 0 and 1 add 10,000 to the first number of the residual stream
    and subtract it again. Behind the norm of block 2 that number is at most 4, the root of the
    width of 16, and near to it only while the 10,000 are there. Its first hidden number is a gate
    of 1e20 x (number - 3), which lets nothing through below 3, times 1e20.
    """
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "model", num_layers=4)
    path = folder / "model.safetensors"
    weights = load_file(path)
    for layer, amount in ((0, 1e4), (1, -1e4)):
        weights[f"model.layers.{layer}.mlp.down_proj.bias"][0] += amount
    block = "model.layers.2"
    weights[f"{block}.post_attention_layernorm.weight"][0] = 1.0
    for name, slope, offset in (("gate", 1e20, -3e20), ("up", 0.0, 1e20)):
        weights[f"{block}.mlp.{name}_proj.weight"][0] = 0.0
        weights[f"{block}.mlp.{name}_proj.weight"][0, 0] = slope
        weights[f"{block}.mlp.{name}_proj.bias"][0] = offset
    save_file(weights, path, metadata={"format": "pt"})
    return f"path:{folder}"


def test_a_configuration_whose_logits_are_no_numbers_is_recorded_and_left_out(
    checkpoint: str, tmp_path: Path, settings: Settings, store: Store
) -> None:
    suite = tmp_path / "riddles.jsonl"
    suite.write_text(
        "".join(
            f'{{"id": "q{i}", "domain": "riddles", "prompt": "number {i} {i} {i}?", '
            f'"reference": "{i}", "metric": "f1", "meta": {{}}}}\n'
            for i in range(6)
        )
    )
    config = SearchConfig(
        domain="riddles",
        target=checkpoint,
        suite=str(suite),
        units="block",
        dtype="float32",
        tolerance=-1.0,
        beam=2,
        depth=2,
        num_selection=2,
        num_heldout=2,
        max_new_tokens=6,
    )
    start = pool_factory(settings, ModelEvaluatorFactory(settings), is_inline=True)
    report = run_search(config, settings, store, start)
    rows = {row.skip: row for level in report.levels for row in level.rows}
    # Without block 1 the stream overflows in block 2; without both it does not.
    assert set(rows) == {"1", "2", "1,2"}
    assert "logits are not numbers" in (rows["1"].error or "")
    assert (rows["2"].error, rows["1,2"].error) == (None, None)
    assert rows["1"].key is not None
    stored = store.evaluations.row(rows["1"].key)
    assert stored is not None
    assert (stored.status, stored.attempts) == ("failed", 2)
    # Another search leaves it out without trying.
    again = run_search(config, settings, store, start)
    after = store.evaluations.row(rows["1"].key)
    assert after is not None
    assert after.attempts == 2
    assert again.costs.num_evaluated == 0
    assert again.levels == report.levels
