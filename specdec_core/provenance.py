"""Identity of the code, environment and command behind a result."""

from __future__ import annotations

import hashlib
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parent
# The modules whose change may change a result; search, settings and reports do not. Options are
# among them: a default that changes is left out of the text of a drafter.
_RESULT_CODE = (
    "config/base.py",
    "config/drafters.py",
    "config/learned_drafters.py",
    "config/model_drafters.py",
    "config/ptd.py",
    "config/retrieval.py",
    "config/sampling.py",
    "config/tree_options.py",
    "config/window_drafters.py",
    "data",
    "decoding",
    "drafts",
    "models",
    "tree",
    "retrieval",
    "bench/metrics.py",
    "evaluation.py",
    "language_loss.py",
    "profiling/memory.py",
    "randomness.py",
    "skip.py",
    "summary.py",
)
# The same for what a training makes of its data.
_TRAINING_CODE = ("config/losses.py", "config/training.py", "drafts", "training")
# The same for the tokens and hidden states that it is given; drafters take no part in them.
_DATA_CODE = (
    "config/sampling.py",
    "data",
    "decoding/loop.py",
    "decoding/ranking.py",
    "decoding/sampling.py",
    "decoding/sequence.py",
    "decoding/verification",
    "evaluation.py",
    "models",
    "randomness.py",
    "training/manifest.py",
    "training/masks.py",
    "training/prompts.py",
    "training/records.py",
    "training/responses.py",
    "training/samples.py",
    "training/spans.py",
    "tree",
)
_SOURCE_SUFFIXES = {".py", ".cpp", ".hpp"}
# The folders of an absolute path, and what stands before the path of an address.
_ABSOLUTE = re.compile(r"(?:\w[\w+]*:/|(?<![^:=]))/.*/")
_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "gguf", "ray", "optuna")


@cache
def code_version() -> str:
    """Return a short hash of the sources that determine evaluation results."""
    return _hash_of(_RESULT_CODE)


@cache
def training_code_version() -> str:
    """Return a short hash of the sources that determine what a draft learns."""
    return _hash_of(_TRAINING_CODE)


@cache
def data_code_version() -> str:
    """Return a short hash of the sources that determine training data."""
    return _hash_of(_DATA_CODE)


def _hash_of(names: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        path = _PACKAGE / name
        for file in sorted(_sources(path)) if path.is_dir() else [path]:
            digest.update(f"{file.relative_to(_PACKAGE)}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _sources(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix in _SOURCE_SUFFIXES)


def describe_provenance() -> dict[str, Any]:
    """Return commit, uncommitted changes, command, Python and package versions, for storing."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "is_dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "code_version": code_version(),
        "command": command_line(sys.argv),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def command_line(argv: Sequence[str]) -> str:
    """Return how a process was started, without the folders of its machine."""
    program, given = Path(argv[0]), [_ABSOLUTE.sub("", argument) for argument in argv[1:]]
    if program.name == "__main__.py":
        return shlex.join(["python", "-m", program.parent.name, *given])
    return shlex.join([program.name, *given])


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(_PACKAGE), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
