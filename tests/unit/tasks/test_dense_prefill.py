"""A search with dense prefill: what it asks for, and what becomes of the profile it publishes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from db.documents import export_document, read_document
from db.profile_diff import diff_profiles
from db.store import Store
from flows.commands.execute import execute
from specdec_core.config.build import build_config
from specdec_core.config.drafters import NoDrafter
from specdec_core.config.serving import ServingConfig
from specdec_core.config.settings import Settings
from specdec_core.decoding import DrafterContext, generate, make_drafter
from specdec_core.errors import ConfigError
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.skip import SkipConfig
from tasks.checkpoints import export_profile
from tasks.pool import pool_factory
from tasks.report import SearchReport
from tasks.serving.setup import open_serving
from tasks.verify_profile import verify_profile
from tests.integration import store_examples as examples
from tests.table_evaluator import Control, TableEvaluator, workload
from tests.unit.tasks.inline_search import search

DRAFTER = "prompt-lookup:num_tokens=3"


def requests_of(store: Store, run_id: str) -> dict[tuple[str, str], set[str]]:
    """How prompts are read, by role and skip set."""
    found: dict[tuple[str, str], set[str]] = {}
    for each in store.runs.evaluations(run_id):
        request = each.row.request
        found.setdefault((each.role, request.skip), set()).add(request.prefill)
    return found


@pytest.mark.parametrize("strategy", ["tss", "sleb"])
def test_every_sparse_request_of_a_search_reads_prompts_as_asked(
    settings: Settings, store: Store, control: Control, strategy: str
) -> None:
    report = search(settings, store, control, prefill="dense", strategy=strategy)
    assert report.config.prefill == "dense"
    sparse = {k: v for k, v in requests_of(store, report.run_id).items() if k[1]}
    assert {role for role, _ in sparse} >= {"selection", "heldout-sparse"}
    assert all(prefills == {"dense"} for prefills in sparse.values())


def test_the_two_ways_share_the_dense_target_and_nothing_else(
    settings: Settings, store: Store, control: Control
) -> None:
    first = search(settings, store, control, activate=False)
    second = search(settings, store, control, activate=False, prefill="dense")
    assert first.dense.key == second.dense.key
    keys = [
        {row.key for level in report.levels for row in level.rows if row.skip}
        for report in (first, second)
    ]
    assert keys[0]
    assert not keys[0] & keys[1]
    # What the store had: dense on selection items, and two held-out arms in ten turns.
    assert second.costs.num_memoised == 1 + 2 * 10


def published(settings: Settings, store: Store, control: Control) -> SearchReport:
    report = search(settings, store, control, prefill="dense")
    assert report.verdict == "published"
    return report


def test_the_profile_says_so_through_store_document_and_difference(
    settings: Settings, store: Store, control: Control
) -> None:
    report = published(settings, store, control)
    profile = store.profiles.resolve("path:/table", "translation")
    assert (profile.skip, profile.prefill) == ("2,3", "dense")
    run = store.runs.get(report.run_id)
    assert run is not None
    document = export_document(profile, run, [], [])
    assert read_document(document.model_dump_json(), "a file").profile == profile
    again = search(settings, store, control)
    assert again.profile.is_new
    successor = store.profiles.resolve("path:/table", "translation")
    assert successor.prefill == "sparse"
    differences = {each.name: each for each in diff_profiles(profile, successor).differences}
    assert (differences["prefill"].first, differences["prefill"].second) == ("dense", "sparse")


def test_a_verification_reads_prompts_as_the_search_did(
    settings: Settings, store: Store, control: Control
) -> None:
    profile = published(settings, store, control).profile
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    report = verify_profile(profile.id, settings, store, start, prepare_workload=workload)
    asked = requests_of(store, report.verification.run_id)
    assert asked["heldout-sparse", "2,3"] == {"dense"}
    assert asked["heldout-dense", ""] == {"sparse"}


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = write_tiny_checkpoint(tmp_path / "model", "gemma3", max_position_embeddings=512)
    return f"path:{folder}"


def put_profile(store: Store, settings: Settings, model: str) -> int:
    fields = {
        "target": model,
        "target_identity": resolve_model(model, settings.cache_dir).identity,
        "num_layers": 3,
        "skip": "1",
        "prefill": "dense",
        "domain": "qa",
        "drafter": DRAFTER,
        "dtype": "float64",
    }
    run = examples.make_run(store)
    stored = store.profiles.publish(examples.profile(run.id, **fields))
    assert stored.id is not None
    return stored.id


def test_it_is_served_with_the_outputs_that_were_measured(
    store: Store, settings: Settings, model: str
) -> None:
    put_profile(store, settings, model)
    config = ServingConfig(target=model, dtype="float64", drafter=DRAFTER)
    with open_serving(config, settings, lambda _line: None, needs_router=False) as serving:
        lease = serving.controller.lease("qa")
        assert lease.decision.prefill == "dense"
        outputs = []
        skip, target = SkipConfig.parse("1"), serving.target
        views = (lease.view, target.view(skip, prefill="dense"), target.view(skip))
        for view in views:
            (found,) = generate(
                view,
                [list(range(60, 90))],
                [make_drafter(NoDrafter(), DrafterContext())],
                max_new_tokens=40,
                eos_ids=(),
            )
            outputs.append(found.token_ids)
    assert outputs[0] == outputs[1] != outputs[2]


def test_generate_tells_how_the_prompt_was_read(
    store: Store,
    settings: Settings,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put_profile(store, settings, model)
    for name in ("home", "cache"):
        monkeypatch.setenv(f"SPECDEC_{name.upper()}", str(getattr(settings, name)))
    words = ["generate", "--target", model, "--dtype", "float64", "--max-new-tokens", "8", "Who?"]
    assert execute([*words, "--drafter", DRAFTER, "--domain", "qa", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["skip"], document["prefill"]) == ("1", "dense")
    by_hand = ["--profiles", "none", "--skip", "1", "--prefill", "dense", "--raw"]
    assert execute([*words, *by_hand]) == 0
    assert "skips 1 after dense prefill" in capsys.readouterr().err


def test_by_hand_it_needs_a_skip_set() -> None:
    with pytest.raises(ConfigError, match="prefill dense goes with a skip set given by hand"):
        build_config(ServingConfig, {}, {"prefill": "dense"})


def test_no_checkpoint_can_be_made_of_it(
    store: Store, settings: Settings, model: str, tmp_path: Path
) -> None:
    number = put_profile(store, settings, model)
    with pytest.raises(ConfigError, match="measured with dense prefill, and a checkpoint without"):
        export_profile(number, tmp_path / "out", settings)
    assert not (tmp_path / "out").exists()
