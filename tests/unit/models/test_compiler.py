"""Which compiler builds the kernels."""

from pathlib import Path

import pytest

from specdec_core.models.native import build

GNU = "x 13.2\nCopyright (C) 2023 Free Software Foundation, Inc."


def write_compiler(folder: Path, name: str, version: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{version}\nEND\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of compilers in front of everything that is installed."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CXX", raising=False)
    return tmp_path


def test_a_named_gnu_compiler_is_taken_and_another_is_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gnu = write_compiler(folder, "g++", GNU)
    own = write_compiler(folder, "g++-own", GNU.replace("13.2", "14.1"))
    write_compiler(folder, "clang++", "clang version 18.1.3")
    assert build._compiler() == (gnu, f"{GNU}\n")
    monkeypatch.setenv("CXX", "g++-own")
    assert build._compiler() == (own, f"{GNU}\n".replace("13.2", "14.1"))
    for other in ("clang++", "not-there"):
        monkeypatch.setenv("CXX", other)
        assert build._compiler() == (gnu, f"{GNU}\n")


def test_a_clang_called_gnu_is_no_compiler(folder: Path) -> None:
    write_compiler(folder, "g++", "clang version 18.1.3")
    assert build._compiler() is None


def test_another_version_builds_another_library(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler writes a file named after its version where it is told to."""
    script = "#!/bin/sh\nwhile [ $1 != -o ]; do shift; done\necho made > $2\n"
    compiler = folder / "g++"
    compiler.write_text(script)
    compiler.chmod(0o755)
    made = {build._compiled((str(compiler), version), folder / "kernels") for version in "121"}
    assert len(made) == 2
    assert all(path.read_text() == "made\n" for path in made)
