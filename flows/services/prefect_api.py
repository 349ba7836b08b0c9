"""The part of Prefect's REST interface that the supervisor needs, without importing Prefect."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from flows.services.http import post_json

_UNFINISHED = ("RUNNING", "PENDING", "CANCELLING")
# A schedule missed by more than this is not made up for when the services come back.
_MISSED_AFTER = timedelta(minutes=10)


class PrefectApi:
    """Flow runs and workers of one work pool, by REST."""

    def __init__(self, url: str, pool: str) -> None:
        """`url` ends in ``/api``."""
        self._url = url
        self._pool = pool

    def is_worker_online(self, pool: str, name: str) -> bool:
        """True if the worker called `name` reports to the pool."""
        try:
            workers = post_json(f"{self._url}/work_pools/{pool}/workers/filter", {})
        except OSError:
            return False
        return any(w["name"] == name and w["status"] == "ONLINE" for w in workers)

    def unfinished_runs(self) -> list[dict[str, Any]]:
        """Runs of our deployments that a process should be working on."""
        return self._runs({"state": {"type": {"any_": list(_UNFINISHED)}}})

    def set_state(self, run_id: str, kind: str, message: str, *, force: bool) -> None:
        """Ask for (or with `force` impose) a state such as ``CRASHED``.

        Raises:
            OSError: if the server cannot be reached or refuses.
        """
        state = {"type": kind, "name": kind.capitalize(), "message": message}
        post_json(f"{self._url}/flow_runs/{run_id}/set_state", {"state": state, "force": force})

    def missed_runs(self) -> list[dict[str, Any]]:
        """Scheduled runs whose time passed while nothing could run them."""
        before = (datetime.now(UTC) - _MISSED_AFTER).isoformat()
        late = self._runs(
            {
                "state": {"type": {"any_": ["SCHEDULED"]}},
                "expected_start_time": {"before_": before},
            }
        )
        return [run for run in late if run.get("auto_scheduled")]

    def _runs(self, flow_runs: dict[str, Any]) -> list[dict[str, Any]]:
        body = {
            "flow_runs": flow_runs,
            "work_pools": {"name": {"any_": [self._pool]}},
            "limit": 200,
        }
        runs: list[dict[str, Any]] = post_json(f"{self._url}/flow_runs/filter", body)
        return runs


def reap(api: PrefectApi, alive: Collection[str], say: Callable[[str], None]) -> int:
    """Mark runs as crashed whose process is gone, so that they can be retried.

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
        was_cancelling = run["state_type"] == "CANCELLING"
        kind = "CANCELLED" if was_cancelling else "CRASHED"
        api.set_state(
            run["id"], kind, "the process of this run is gone; found at start", force=True
        )
        say(
            f"flow run {run['name']} had no process any more and is now {kind.capitalize()}; "
            f"continue it with: prefect flow-run retry {run['id']}"
        )
    missed = api.missed_runs()
    for run in missed:
        api.set_state(
            run["id"], "CANCELLED", "missed while the services were down", force=True
        )
        say(f"scheduled run {run['name']} of {run['expected_start_time']} was missed: cancelled")
    return len(lost) + len(missed)
