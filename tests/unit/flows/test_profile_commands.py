"""`specdec profiles`: what each verb prints, stores and answers with its exit code."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from db.schemas import ProfileScores, ProfileStatus, SkipProfile
from db.store import Store
from flows import drivers
from flows.commands.execute import execute
from specdec_core.config.search import SearchConfig
from specdec_core.config.settings import Settings
from specdec_core.data.split import split
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.serving.controller import RuntimeController
from specdec_core.serving.profile import TargetFacts
from specdec_core.serving.sources import FileProfiles
from tasks.pool import pool_factory
from tasks.prepare import prepare
from tests.integration import store_examples as examples


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "home"


def open_store() -> Store:
    return Store.open(Settings().resolved_database_url)


def seed(*statuses: str, **changes: Any) -> list[SkipProfile]:
    """Store one version per status, each skipping another layer; return them."""
    with open_store() as store:
        store.targets.put(examples.target())
        return [
            store.profiles.publish(
                examples.profile(
                    examples.make_run(store).id, skip=f"a{number}", status=status, **changes
                )
            )
            for number, status in enumerate(statuses, start=3)
        ]


def answer(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    """The JSON document that a command prints."""
    capsys.readouterr()
    assert execute(["profiles", *words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_lists_are_filtered_by_every_status(capsys: pytest.CaptureFixture[str]) -> None:
    stored = {each.status: each.id for each in seed("candidate", "rejected", "active", "validated")}
    for status in get_args(ProfileStatus):
        found = answer(capsys, "list", "--status", status)
        assert [each["id"] for each in found] == ([stored[status]] if status in stored else [])
    assert len(answer(capsys, "list")) == 4
    assert execute(["profiles", "list", "--status", "odd"]) == 2


def test_activate_and_retire_are_kept_with_account_command_and_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    active, waiting = seed("active", "validated")
    moved = answer(capsys, "activate", str(waiting.id), "--reason", "faster on the new machine")
    assert (moved["id"], moved["status"]) == (waiting.id, "active")
    found = answer(capsys, "resolve", "--target", "pypi:gemma3-270m", "--domain", "translation")
    assert found == moved
    history = answer(capsys, "history", str(waiting.id))
    assert [(each["id"], each["status"]) for each in history["versions"]] == [
        (waiting.id, "active"),
        (active.id, "retired"),
    ]
    last = history["transitions"][-1]
    assert (last["from_status"], last["to_status"]) == ("validated", "active")
    assert last["reason"] == "faster on the new machine"
    assert "@" in last["actor"]
    assert last["command"]
    assert answer(capsys, "retire", str(waiting.id))["status"] == "retired"
    failed = answer(
        capsys, "resolve", "--target", "pypi:gemma3-270m", "--domain", "translation", code=1
    )
    assert failed["error"]["type"] == "ProfileNotFoundError"
    assert execute(["profiles", "history", str(waiting.id)]) == 0
    assert f"Moves of profile {waiting.id}, oldest first" in capsys.readouterr().out


def test_moves_that_cannot_be_are_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    (candidate,) = seed("candidate")
    assert execute(["profiles", "activate", str(candidate.id)]) == 2
    assert "is candidate and cannot become active" in capsys.readouterr().err
    assert execute(["profiles", "activate", "77"]) == 1
    assert "there is no profile 77" in capsys.readouterr().err


def test_diff_shows_units_fields_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with open_store() as store:
        scores = ProfileScores(acceptance_length=2.5, metric=0.12, dense_acceptance_length=2.0)
        first, second = (
            store.profiles.publish(examples.profile(examples.make_run(store).id, **changes))
            for changes in (
                {"skip": "a3,a11"},
                {"skip": "a3,a12", "selection": scores, "tolerance_metric": -0.1},
            )
        )
    found = answer(capsys, "diff", str(first.id), str(second.id))
    assert (found["only_first"], found["only_second"]) == (["a11"], ["a12"])
    assert {each["name"]: (each["kind"], each["first"], each["second"]) for each in
            found["differences"]} == {
        "skip": ("field", "a3,a11", "a3,a12"),
        "status": ("field", "retired", "active"),
        "selection.acceptance_length": ("figure", 2.2, 2.5),
        "selection.dense_metric": ("figure", 0.12, None),
        "tolerance_metric": ("field", -0.05, -0.1),
    }  # fmt: skip
    assert answer(capsys, "diff", str(first.id), str(first.id))["differences"] == []
    assert execute(["profiles", "diff", str(first.id), str(second.id)]) == 0
    assert "units that only 1 skips" in capsys.readouterr().out


def exported(tmp_path: Path, profile: SkipProfile) -> Path:
    path = tmp_path / "out" / "profile.json"
    assert execute(["profiles", "export", str(profile.id), "--to", str(path)]) == 0
    return path


def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **changes: Any) -> None:
    """Go on in another store, which knows the target in one form."""
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "elsewhere"))
    with open_store() as store:
        store.targets.put(examples.target(**changes))


def test_an_exported_profile_becomes_a_candidate_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (profile,) = seed("active")
    path = exported(tmp_path, profile)
    document = answer(capsys, "export", str(profile.id))
    assert json.loads(path.read_text()) == document
    assert (document["format"], document["schema_version"]) == ("specdec-profile", 1)
    assert document["origin"]["provenance"] == examples.PROVENANCE
    assert [each["to_status"] for each in document["origin"]["transitions"]] == [
        "candidate",
        "validated",
        "active",
    ]
    elsewhere(monkeypatch, tmp_path)
    stored = answer(capsys, "import", str(path))
    assert (stored["status"], stored["version"], stored["skip"]) == ("candidate", 1, "a3")
    assert stored["heldout"] == document["profile"]["heldout"]
    assert answer(capsys, "import", str(path)) == stored  # once is enough
    history = answer(capsys, "history", str(stored["id"]))
    (move,) = history["transitions"]
    assert "imported: it was active version 1 of run" in move["reason"]
    with open_store() as store:
        run = store.runs.get(stored["run_id"])
        assert run is not None
        assert (run.kind, run.status, run.config) == ("profile-import", "completed", {"beam": 4})
        assert run.provenance["origin"]["content_hash"] == document["content_hash"]
        assert run.provenance["origin"]["provenance"] == examples.PROVENANCE


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: text.replace('"a3"', '"a4"'), "it was changed or cut after the export"),
        (lambda text: text[:-20], "is no JSON"),
        (lambda _text: '{"format": "other"}', "is no exported profile"),
        (
            lambda text: text.replace('"schema_version": 1', '"schema_version": 2'),
            "has schema version 2, this version of specdec-lab reads 1",
        ),
    ],
)
def test_a_spoiled_document_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Any, message: str
) -> None:
    (profile,) = seed("active")
    path = exported(tmp_path, profile)
    path.write_text(spoil(path.read_text()))
    assert execute(["profiles", "import", str(path)]) == 2
    assert message in capsys.readouterr().err
    assert len(answer(capsys, "list")) == 1


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"identity": "b" * 64}, "another revision"),
        ({"num_layers": 12}, "is for 18 layers, and target pypi:gemma3-270m has 12"),
    ],
)
def test_a_profile_of_another_target_is_not_imported(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    known: dict[str, Any],
    message: str,
) -> None:
    (profile,) = seed("active", target="path:/no/such/model", target_identity="c" * 64)
    path = exported(tmp_path, profile)
    elsewhere(monkeypatch, tmp_path)
    assert execute(["profiles", "import", str(path)]) == 2
    assert "/no/such/model" in capsys.readouterr().err  # neither in the store nor to be looked at
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "third"))
    (usual,) = seed("active")
    other = exported(tmp_path, usual)
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "fourth"))
    with open_store() as store:
        if "identity" in known:  # the identity is known, and its reference means another by now
            store.targets.put(examples.target())
        store.targets.put(examples.target(**known))
    assert execute(["profiles", "import", str(other)]) == 2
    assert message in capsys.readouterr().err
    assert answer(capsys, "list") == []


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SkipProfile:
    """A candidate for a tiny model, whose run says how it was measured; workers are in here."""
    monkeypatch.setattr(drivers, "pool_factory", functools.partial(pool_factory, is_inline=True))
    folder = write_tiny_checkpoint(tmp_path / "tiny", num_layers=4)
    config = json.loads((folder / "config.json").read_text())
    # Bytes as tokens make the few-shot header long.
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    search = SearchConfig(
        domain="qa", target=f"path:{folder}", suite="builtin", max_new_tokens=8, dtype="float32"
    )
    known = prepare(search.target, "qa", "builtin", "float32", Settings())
    ids = split(known.suite, 4, 4).heldout_ids
    with open_store() as store:
        known.register(store)
        run = examples.make_run(store, config=search.model_dump(mode="json"))
        store.runs.update(run.id, status="completed", summary={"heldout_ids": ids})
        return store.profiles.publish(
            examples.profile(
                run.id,
                target=known.target.reference,
                target_identity=known.target.identity,
                num_layers=4,
                dtype="float32",
                domain="qa",
                drafter=search.drafter,
                skip="1",
                status="candidate",
                suite_hash=known.suite.content_hash,
                template_hash=known.template_hash,
            )
        )


def test_verify_answers_with_its_exit_code(
    tiny: SkipProfile, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    code = execute(["profiles", "verify", str(tiny.id), "--json"])
    report = json.loads(capsys.readouterr().out)
    # A model of random weights scores nothing, so that nothing could be seen to be kept.
    assert code == 1
    assert report["verification"]["holds"] is False
    assert report["verification"]["heldout"]["num_items"] == 4
    assert report["status"] == "rejected"
    history = answer(capsys, "history", str(tiny.id))
    assert [each["holds"] for each in history["verifications"]] == [False]
    assert history["transitions"][-1]["reason"] == report["verification"]["reason"]
    assert execute(["profiles", "activate", str(tiny.id)]) == 2


def test_an_import_looks_at_the_model_itself_where_the_store_has_never_seen_it(
    tiny: SkipProfile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = exported(tmp_path, tiny)
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "elsewhere"))
    stored = answer(capsys, "import", str(path))
    assert (stored["status"], stored["target_identity"]) == ("candidate", tiny.target_identity)
    other = write_tiny_checkpoint(tmp_path / "other", num_layers=4, seed=9)
    assert execute(["profiles", "import", str(path), "--target", f"path:{other}"]) == 2
    assert "it is another revision or another model" in capsys.readouterr().err
    Path(tmp_path / "tiny").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    moved = answer(capsys, "import", str(path), "--target", "path:./moved/")
    assert moved["target"] == f"path:{tmp_path / 'moved'}"
    assert moved["version"] == 2


def test_map_writes_what_a_server_without_a_database_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed("active", domain="translation")
    with open_store() as store:
        run = examples.make_run(store)
        store.runs.update(run.id, status="completed", summary={"selection_ids": ["de-1", "de-2"]})
        store.profiles.publish(examples.profile(run.id, domain="qa", skip="2,m4"))
        dense = {"domain": "math", "skip": "", "is_dense": True}
        store.profiles.publish(examples.profile(run.id, **dense))
        store.profiles.publish(examples.profile(run.id, domain="rag", status="validated"))
    asked = ("--target", "pypi:gemma3-270m", "--drafter", "token-recycling")
    path = tmp_path / "maps" / "gemma.json"
    found = answer(capsys, "map", *asked, "--to", str(path))
    assert found == {"file": str(path), "domains": ["math", "qa", "translation"]}
    document = json.loads(path.read_text())
    assert document == answer(capsys, "map", *asked)
    profile = examples.profile("r")
    assert (document["model"], document["num_layers"]) == (profile.target, profile.num_layers)
    assert (document["model_identity"], document["dtype"]) == ("a" * 64, "bfloat16")
    assert (document["default"], document["drafter"]) == ([], "token-recycling")
    assert document["created_by"].startswith("specdec-lab ")
    qa, scores = document["domains"]["qa"], profile.selection
    assert (qa["skip"], qa["status"], qa["sel_ids"]) == ([2, "m4"], "active", ["de-1", "de-2"])
    assert (qa["A"], qa["M"]) == (scores.acceptance_length, scores.metric)
    assert (qa["A0"], qa["M0"]) == (scores.dense_acceptance_length, scores.dense_metric)
    assert qa["eps"] == [profile.tolerance_acceptance, profile.tolerance_metric]

    facts = TargetFacts(profile.target, "a" * 64, "bfloat16", profile.num_layers, profile.drafter)
    controller = RuntimeController(facts, FileProfiles(path), str)
    leases = {domain: controller.lease(domain) for domain in ("qa", "math", "rag")}
    assert [str(lease.skip) for lease in leases.values()] == ["2,m4", "", ""]
    assert [lease.decision.reason for lease in leases.values()] == [None, "no-gain", "no-profile"]
    controller.kill("qa")
    assert controller.lease("qa").decision.reason == "kill-switch"
    controller.revive("qa")
    path.unlink()
    assert controller.lease("qa").decision.reason == "no-profile"


def test_map_of_nothing_and_of_several_targets_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("--target", "pypi:gemma3-270m", "--drafter", "token-recycling")
    error = answer(capsys, "map", *asked, code=1)["error"]
    assert error["type"] == "ProfileNotFoundError"
    assert "no profile of target 'pypi:gemma3-270m'" in error["message"]
    seed("active")
    seed("active", dtype="float32", domain="qa")
    error = answer(capsys, "map", *asked, code=2)["error"]
    assert "in bfloat16; identity aaaaaaaaaaaa in float32" in error["message"]
    assert "give --dtype" in error["message"]
    assert list(answer(capsys, "map", *asked, "--dtype", "float32")["domains"]) == ["qa"]
