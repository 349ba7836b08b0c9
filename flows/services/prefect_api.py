"""The part of Prefect's REST interface that we need, without importing Prefect."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from flows.services.http import get_json, post_json

_UNFINISHED = ("RUNNING", "PENDING", "CANCELLING")
# A schedule missed by more than this is not made up for when the services come back.
_MISSED_AFTER = timedelta(minutes=10)
_PAGE = 200


class PrefectApi:
    """Deployments, flow runs and workers of one work pool, by REST.

    Every method raises OSError if the server cannot be reached, and RequestRefusedError, which is
    one, if it answers with an error.
    """

    def __init__(self, url: str, pool: str) -> None:
        """`url` ends in ``/api``."""
        self.url = url.rstrip("/")
        self._pool = pool

    def online_workers(self) -> list[str]:
        """Names of the workers that report to the pool; empty if it does not exist."""
        try:
            workers = self._post(f"work_pools/{self._pool}/workers/filter", {})
        except OSError:
            return []
        return [worker["name"] for worker in workers if worker["status"] == "ONLINE"]

    def deployment(self, name: str) -> dict[str, Any]:
        """The deployment called ``flow/deployment``."""
        found: dict[str, Any] = get_json(f"{self.url}/deployments/name/{quote(name)}")
        return found

    def deployment_names(self) -> list[str]:
        """Names of all deployments, as ``flow/deployment``, sorted."""
        flows = {flow["id"]: flow["name"] for flow in self._post("flows/filter", {"limit": _PAGE})}
        found = self._post("deployments/filter", {"limit": _PAGE})
        return sorted(f"{flows[each['flow_id']]}/{each['name']}" for each in found)

    def start_run(self, deployment_id: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Schedule a run of a deployment for now; the server checks the parameters."""
        body = {"parameters": dict(parameters), "state": {"type": "SCHEDULED"}}
        run: dict[str, Any] = self._post(f"deployments/{deployment_id}/create_flow_run", body)
        return run

    def run(self, run_id: str) -> dict[str, Any]:
        """One flow run."""
        found: dict[str, Any] = get_json(f"{self.url}/flow_runs/{run_id}")
        return found

    def logs(self, run_id: str, offset: int) -> list[dict[str, Any]]:
        """Log lines of a run from number `offset` on, oldest first."""
        body = {
            "logs": {"flow_run_id": {"any_": [run_id]}},
            "sort": "TIMESTAMP_ASC",
            "offset": offset,
            "limit": _PAGE,
        }
        lines: list[dict[str, Any]] = self._post("logs/filter", body)
        return lines

    def artifacts(self, run_id: str, kind: str) -> list[dict[str, Any]]:
        """Artifacts of one kind that a run has left, newest first."""
        chosen = {"flow_run_id": {"any_": [run_id]}, "type": {"any_": [kind]}}
        found: list[dict[str, Any]] = self._post(
            "artifacts/filter", {"artifacts": chosen, "sort": "CREATED_DESC"}
        )
        return found

    def unfinished_runs(self) -> list[dict[str, Any]]:
        """Runs of our deployments that a process should be working on."""
        return self._pool_runs({"state": {"type": {"any_": list(_UNFINISHED)}}})

    def missed_runs(self) -> list[dict[str, Any]]:
        """Runs that a schedule made and whose time passed while nothing could run them."""
        before = (datetime.now(UTC) - _MISSED_AFTER).isoformat()
        late = {
            "state": {"type": {"any_": ["SCHEDULED"]}},
            "expected_start_time": {"before_": before},
        }
        return [run for run in self._pool_runs(late) if run.get("auto_scheduled")]

    def set_state(self, run_id: str, kind: str, message: str, *, force: bool) -> None:
        """Ask for (or with `force` impose) a state such as ``CRASHED``."""
        state = {"type": kind, "name": kind.capitalize(), "message": message}
        self._post(f"flow_runs/{run_id}/set_state", {"state": state, "force": force})

    def _pool_runs(self, flow_runs: dict[str, Any]) -> list[dict[str, Any]]:
        pools = {"name": {"any_": [self._pool]}}
        body = {"flow_runs": flow_runs, "work_pools": pools, "limit": _PAGE}
        runs: list[dict[str, Any]] = self._post("flow_runs/filter", body)
        return runs

    def _post(self, path: str, body: Any) -> Any:
        return post_json(f"{self.url}/{path}", body)
