"""One prompt answered by command, and where its profile comes from."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from db.api.app import create_app
from db.store import Store
from flows.commands.execute import execute
from specdec_core.config.build import build_config
from specdec_core.config.serving import BY_HAND, GenerateConfig, ServingConfig
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint
from tasks.serving.setup import open_serving
from tests.integration import store_examples as examples

DRAFTER = "prompt-lookup:num_tokens=3"


@pytest.fixture
def model(tmp_path: Path) -> str:
    # Room for the worked examples of a domain, one token per byte.
    folder = write_tiny_checkpoint(tmp_path / "model", "llama", max_position_embeddings=512)
    return f"path:{folder}"


def published(store: Store, settings: Settings, model: str, **changes: object) -> None:
    identity = resolve_model(model, settings.cache_dir).identity
    fields = {
        "target": model,
        "target_identity": identity,
        "num_layers": 3,
        "skip": "1",
        "domain": "qa",
        "drafter": DRAFTER,
        "dtype": "float64",
        **changes,
    }
    store.profiles.publish(examples.profile(examples.make_run(store).id, **fields))


def lease_of(settings: Settings, domain: str, **fields: object) -> tuple[str, str]:
    config = ServingConfig.model_validate({"dtype": "float64", "drafter": DRAFTER, **fields})
    with open_serving(config, settings, lambda _line: None, needs_router=False) as serving:
        lease = serving.controller.lease(domain)
        return str(lease.view.skip), lease.decision.text


def test_profiles_come_from_the_store(store: Store, settings: Settings, model: str) -> None:
    published(store, settings, model)
    assert lease_of(settings, "qa", target=model) == ("1", "profile 1 of qa")
    assert lease_of(settings, "math", target=model)[0] == ""
    assert lease_of(settings, "qa", target=model, profiles="none")[0] == ""
    assert lease_of(settings, "qa", target=model, drafter="none")[0] == ""
    skip, why = lease_of(settings, "qa", target=model, protected_layers=(1,))
    assert (skip, why) == (
        "",
        "profile 1 is refused: it skips parts of the protected layers [1]",
    )


def test_profiles_come_from_the_rest_api(
    store: Store, settings: Settings, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real application behind the real client; only the socket between them is left out."""
    import urllib.error
    import urllib.request
    from email.message import Message

    from fastapi.testclient import TestClient

    published(store, settings, model)
    client = TestClient(create_app(settings, store=store))
    statuses = []

    def answer(request: urllib.request.Request, timeout: float) -> object:
        got = client.get(request.full_url, headers=dict(request.header_items()))
        statuses.append(got.status_code)
        body = io.BytesIO(got.content)
        if got.status_code != 200:
            raise urllib.error.HTTPError(request.full_url, got.status_code, "", Message(), body)
        body.headers = got.headers  # type: ignore[attr-defined]
        return body

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    config = ServingConfig(
        target=model,
        dtype="float64",
        drafter=DRAFTER,
        profiles="http://testserver",
        refresh_s=1e-9,
    )
    with open_serving(config, settings, lambda _line: None, needs_router=False) as serving:
        skips = [str(serving.controller.lease("qa").skip) for _ in range(2)]
        assert serving.controller.lease("math").decision.reason == "no-profile"
        published(store, settings, model, domain="code", target_identity="b" * 64)
        other = serving.controller.lease("code").decision
        assert (other.reason, other.fault) == ("refused", "revision")
        assert "profile 2 is refused: it is for another revision" in other.text
    assert (skips, statuses) == (["1", "1"], [200, 304, 404, 404])


def refusal(settings: Settings, **fields: object) -> tuple[str, dict[str, int]]:
    """Why `qa` is dense, and the counters of refused profiles."""
    config = ServingConfig.model_validate({"dtype": "float64", "drafter": DRAFTER, **fields})
    with open_serving(config, settings, lambda _line: None, needs_router=False) as serving:
        lease = serving.controller.lease("qa")
        assert str(lease.view.skip) == ""
        return lease.decision.text, serving.controller.snapshot().refused


def test_a_profile_of_another_revision_or_layer_count_is_refused_and_counted(
    store: Store, settings: Settings, model: str
) -> None:
    published(store, settings, model, target_identity="b" * 64)
    text, refused = refusal(settings, target=model)
    assert "profile 1 is refused: it is for another revision: files bbbbbbbbbbbb.." in text
    assert refused == {"revision": 1}
    published(store, settings, model, num_layers=7)
    text, refused = refusal(settings, target=model)
    assert text == "profile 2 is refused: it is for 7 layers, the target has 3"
    assert refused == {"layers": 1}


def test_a_skip_set_by_hand_needs_no_domain(settings: Settings, model: str) -> None:
    assert ServingConfig(skip="1").asked_domain == BY_HAND
    assert lease_of(settings, BY_HAND, target=model, skip="a1,m2")[0] == "a1,m2"
    with pytest.raises(ConfigError, match="names layer 7"):
        lease_of(settings, "qa", target=model, skip="7")
    with pytest.raises(ConfigError, match=r"skip set '1' cannot be used: .*protected layers \[1\]"):
        lease_of(settings, "qa", target=model, skip="1", protected_layers=(1,))
    with pytest.raises(ConfigError, match=r"protected layers \[3\] are none of .* 0 to 2"):
        lease_of(settings, "qa", target=model, protected_layers=(1, 3))
    with pytest.raises(ConfigError, match="give skip, or domain none"):
        build_config(GenerateConfig, {}, {"skip": "1", "domain": "none"})


def test_a_map_that_is_not_there_is_said_before_the_model_is_loaded(
    settings: Settings, model: str
) -> None:
    with pytest.raises(ConfigError, match=r"there is no domain map /nowhere\.json"):
        lease_of(settings, "qa", target=model, profiles="/nowhere.json")


@pytest.fixture
def home(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_HOME", str(settings.home))
    monkeypatch.setenv("SPECDEC_CACHE", str(settings.cache))
    monkeypatch.setenv("SPECDEC_THREADS", "1")


def generate_words(model: str, *more: str) -> list[str]:
    words = ["generate", "--target", model, "--dtype", "float64", "--max-new-tokens", "20"]
    return [*words, "--drafter", DRAFTER, "--domain", "qa", *more]


@pytest.mark.usefixtures("home")
def test_generate_prints_the_text_as_it_is_in_the_document(
    store: Store, settings: Settings, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    published(store, settings, model)
    assert execute(generate_words(model, "Who wrote it?", "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["skip"], document["domain"], document["dtype"]) == ("1", "qa", "float64")
    assert document["why"] == "profile 1 of qa"
    assert document["acceptance_length"] >= 1.0
    assert execute(generate_words(model, "Who wrote it?")) == 0
    shown = capsys.readouterr()
    assert shown.out == document["text"] + "\n"
    assert "skips 1: profile 1 of qa (domain qa)" in shown.err


@pytest.mark.usefixtures("home")
def test_generate_reads_standard_input(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for words, piped in ((["Once"], ""), (["-"], "Once"), ([], "Once")):
        monkeypatch.setattr("sys.stdin", io.StringIO(piped))
        assert execute(generate_words(model, *words, "--raw", "--profiles", "none")) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] == texts[2]
    monkeypatch.setattr("sys.stdin", io.StringIO(" \n"))
    for words in ([], [""]):
        assert execute(generate_words(model, *words)) == 2
        assert "the prompt is empty" in capsys.readouterr().err
    assert execute(generate_words(model, "one \udcff")) == 2  # a byte that is not UTF-8
    assert "not valid Unicode at character 4" in capsys.readouterr().err


@pytest.mark.usefixtures("home")
def test_generate_samples_by_its_seed(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in (1, 1, 2):
        sampling = f"temperature=1.5,seed={seed}"
        words = ["Once", "--raw", "--profiles", "none", "--sampling", sampling]
        assert execute(generate_words(model, *words)) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.usefixtures("home")
def test_export_command_says_what_it_needs(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert execute(["models", "export", out, "--target", model]) == 2
    assert "give --profile ID, or --target REF and --skip SET" in capsys.readouterr().err
    words = ["models", "export", out, "--target", model, "--skip", "1,a2", "--json"]
    assert execute(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["folder"], document["num_layers"]) == (out, 2)
