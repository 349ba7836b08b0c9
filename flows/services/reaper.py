"""Gives an end to flow runs whose process is gone."""

from __future__ import annotations

from collections.abc import Callable, Collection

from flows.services.prefect_api import PrefectApi


def reap(api: PrefectApi, alive: Collection[str], say: Callable[[str], None]) -> int:
    """Mark runs as crashed whose process is gone, so that they can be started again.

    Prefect itself leaves a run in Running for ever when worker and flow die together. Call this
    only while no worker is starting runs.

    Args:
        api: The Prefect server.
        alive: Ids of the flow runs that still have a process.
        say: Receives one line per run.

    Returns:
        Number of runs that were given an end.

    Raises:
        OSError: if the server cannot be reached.
    """
    lost = [run for run in api.unfinished_runs() if run["id"] not in alive]
    for run in lost:
        kind = "CANCELLED" if run["state_type"] == "CANCELLING" else "CRASHED"
        api.set_state(run["id"], kind, "the process of this run is gone", force=True)
        say(
            f"flow run {run['name']} had no process any more and is now {kind.capitalize()}; "
            "starting its deployment again continues with what is stored"
        )
    missed = api.missed_runs()
    for run in missed:
        api.set_state(run["id"], "CANCELLED", "missed while the services were down", force=True)
        say(f"scheduled run {run['name']} of {run['expected_start_time']} was missed: cancelled")
    return len(lost) + len(missed)
