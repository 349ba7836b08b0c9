"""How a run ends in the store when it does not end well."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

from db.store import Store
from specdec_core.errors import SearchCancelledError, StoreError

EndStatus = Literal["completed", "failed", "cancelled"]


def end_status(error: BaseException) -> Literal["failed", "cancelled"]:
    """Return how a run ended by `error` is marked."""
    # Interrupts, exits and the orchestrator's termination signal are no ordinary exceptions.
    is_cancelled = isinstance(error, SearchCancelledError) or not isinstance(error, Exception)
    return "cancelled" if is_cancelled else "failed"


@contextlib.contextmanager
def note_end(store: Store, run_id: str) -> Iterator[None]:
    """Mark the run as failed or cancelled, with the reason, if the block raises.

    A store that cannot be reached must not hide the first reason.
    """
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(StoreError):
            text = f"{type(error).__name__}: {error}"
            store.runs.update(run_id, status=end_status(error), error=text[:4000])
        raise
