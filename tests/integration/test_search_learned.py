"""A search for skip sets that drafts with a learned drafter: real models, without Ray."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from db.store import Store
from specdec_core.config.search import SearchConfig
from specdec_core.config.settings import Settings
from specdec_core.config.training import PrunedDraft
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.training.pruning import prune_target
from tasks.evaluator import ModelEvaluatorFactory
from tasks.pool import pool_factory
from tasks.search import run_search
from tests.learned_drafts import write_draft

pytestmark = pytest.mark.slow

TOKENS = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, and drafts of it below ``drafts``."""
    folder = tmp_path_factory.mktemp("learned")
    target = write_tiny_checkpoint(folder / "target", num_layers=4, dtype="bfloat16")
    config = json.loads((target / "config.json").read_text())
    # Bytes as tokens make the few-shot header long.
    (target / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    model = resolve_model(f"path:{target}", folder / "cache")
    loaded = load_target(model, dtype="float32", device="cpu")
    for kind in ("eagle", "eagle3-narrow", "medusa"):
        write_draft(folder / "drafts" / kind, kind, loaded)
    shape = PrunedDraft(num_layers=2, vocab_size=200)
    counts = torch.arange(loaded.arch.vocab_size)
    prune_target(model, shape, folder / "drafts" / "pruned", counts=counts)
    prune_target(model, PrunedDraft(num_layers=4), folder / "drafts" / "whole")
    return folder


@pytest.mark.parametrize(
    "drafter",
    [
        "eagle:model={}/eagle",
        "eagle:model={}/eagle3-narrow,shape=chain,gamma=3",
        "medusa:model={}/medusa",
        "draft-model:model=path:{}/pruned,gamma=3",
        "draft-model:model=path:{}/whole,gamma=3",
    ],
)
def test_a_search_drafts_with_a_learned_drafter(folder: Path, tmp_path: Path, drafter: str) -> None:
    settings = Settings(home=tmp_path / "home", cache=tmp_path / "cache", device="cpu", threads=1)
    config = SearchConfig(
        domain="translation",
        target=f"path:{folder / 'target'}",
        dtype="float32",
        suite="builtin",
        drafter=drafter.format(folder / "drafts"),
        num_selection=2,
        num_heldout=4,
        max_new_tokens=TOKENS,
        depth=1,
    )
    start = pool_factory(settings, ModelEvaluatorFactory(settings), is_inline=True)
    with Store.open(settings.resolved_database_url) as store:
        report = run_search(config, settings, store, start)
        rows = [report.dense, *(row for level in report.levels for row in level.rows)]
        found = {row.skip: store.evaluations.get(row.key or "") for row in rows}
    assert report.compared is not None
    assert found.keys() == {"", "a1", "a2"}
    for row in rows:
        assert row.error is None
        result = found[row.skip]
        assert result is not None
        traces = [sample.trace for sample in result.samples]
        assert sum(sum(trace.drafted) for trace in traces) == result.summary.num_drafted > 0
        num_committed = sum(sum(trace.committed) for trace in traces)
        num_steps = sum(len(trace.committed) for trace in traces)
        assert row.acceptance == pytest.approx(num_committed / num_steps)
        # A draft of all blocks is the dense target: nothing it drafts is wrong.
        if drafter.endswith("whole,gamma=3") and not row.skip:
            assert all(trace.accepted == trace.depth for trace in traces)
            assert sum(sum(trace.accepted) for trace in traces) > 0
