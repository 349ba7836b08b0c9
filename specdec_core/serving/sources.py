"""Where skip profiles come from: a file, a REST server, or one given by hand."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from specdec_core.config.domain_map import DomainMap
from specdec_core.errors import ProfileSourceError
from specdec_core.serving.profile import ServedProfile

logger = logging.getLogger(__name__)


class ProfileSource(Protocol):
    """Answers which profile a domain has; asked for every request, from any thread."""

    def find(self, domain: str) -> ServedProfile | None:
        """Return the profile of `domain`, or None where it has none.

        Raises:
            ProfileSourceError: if that cannot be told now and no earlier answer is known.
        """
        ...


class NoProfiles:
    """Every domain runs on the dense target."""

    def find(self, domain: str) -> ServedProfile | None:
        """Return None."""
        del domain
        return None


class OneProfile:
    """Every domain gets the same profile, such as a skip set that is tried by hand."""

    def __init__(self, profile: ServedProfile) -> None:
        self._profile = profile

    def find(self, domain: str) -> ServedProfile | None:
        """Return the profile, under the domain asked for."""
        return self._profile.model_copy(update={"domain": domain})


def mapped_profile(domains: DomainMap, domain: str, label: str) -> ServedProfile | None:
    """Return what a map says of `domain` under `label`, or None where it has no entry."""
    entry = domains.domains.get(domain)
    if entry is None:
        return None
    return ServedProfile(
        label=label,
        domain=domain,
        target=domains.model,
        target_identity=domains.model_identity,
        dtype=domains.dtype,
        drafter=domains.drafter,
        num_layers=domains.num_layers,
        skip=entry.skip_text,
        prefill=entry.prefill,
        status=entry.status,
    )


class FileProfiles:
    """A domain map on disk, read again whenever it changes.

    Without the file every domain is dense. A file that cannot be read leaves the last good map
    in place.

    Source: TSS (domain map).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] | None = None
        self._map: DomainMap | None = None
        self._problem = ""

    def find(self, domain: str) -> ServedProfile | None:
        """Return the profile of `domain` as the file is now.

        Raises:
            ProfileSourceError: if the file has never been good.
        """
        with self._lock:
            self._read_if_changed()
            if self._map is None:
                if not self._problem:
                    return None
                raise ProfileSourceError(f"{self._path}: {self._problem}")
            return mapped_profile(self._map, domain, f"{self._path.name}#{domain}")

    def _read_if_changed(self) -> None:
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            self._seen, self._map, self._problem = None, None, ""
            return
        except OSError as error:  # its folder is no folder, or may not be looked into
            self._seen = None
            self._note(error)
            return
        seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if seen == self._seen:
            return
        try:
            self._map = DomainMap.model_validate_json(self._path.read_bytes())
            self._problem = ""
        except (OSError, ValidationError) as error:
            self._note(error)
        self._seen = seen

    def _note(self, error: Exception) -> None:
        """Say once why the map cannot be read."""
        problem = f"it is no domain map that can be used: {error}"
        if problem != self._problem:
            kept = "the last good one stays" if self._map else "every domain is dense"
            logger.warning("%s: %s; %s", self._path, problem, kept)
        self._problem = problem
