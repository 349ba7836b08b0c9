"""Which version of the package runs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """Return the installed version, or ``unknown`` where the package runs uninstalled."""
    try:
        return version("specdec-lab")
    except PackageNotFoundError:
        return "unknown"
