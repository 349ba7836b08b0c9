"""Ends everything one `specdec up` started: runs first, then the worker, then the servers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from flows.services.plan import POOL
from flows.services.prefect_api import PrefectApi
from flows.services.processes import end_processes, flow_run_processes, instance_processes
from flows.services.state import SupervisorState

# A run that is asked to stop closes its model workers and writes its state.
_CANCEL_S = 20.0
_GRACE_S = 10.0
# The worker reports to the server: it must be gone before the server is, or it never ends.
_ORDER = ("worker", "api", "mlflow", "prefect")


def stop_services(state: SupervisorState, say: Callable[[str], None]) -> int:
    """End every process of the start that `state` describes; return how many there were."""
    api = PrefectApi(state.prefect_api_url, POOL)
    _cancel_runs(state, api, say)
    ended = 0
    by_name = {service.name: service for service in state.services}
    for service in (by_name[name] for name in _ORDER if name in by_name):
        process = service.process.find() if service.process else None
        if process is not None:
            say(f"stopping {service.title}")
            ended += len(end_processes([process], _GRACE_S))
        if service.name == "worker":
            _end_runs(state, api)
    leftovers = end_processes(instance_processes(state.instance), _GRACE_S)
    return ended + len(leftovers)


def _cancel_runs(state: SupervisorState, api: PrefectApi, say: Callable[[str], None]) -> None:
    """Cancel the runs of this start through Prefect, so that they end as Cancelled."""
    asked = False
    for run_id in flow_run_processes(state.instance):
        say(f"cancelling flow run {run_id}; what it has evaluated stays stored")
        with contextlib.suppress(OSError):
            api.set_state(run_id, "CANCELLING", "specdec down", force=False)
            asked = True
    deadline = time.monotonic() + _CANCEL_S
    while asked and flow_run_processes(state.instance) and time.monotonic() < deadline:
        time.sleep(0.5)


def _end_runs(state: SupervisorState, api: PrefectApi) -> None:
    """End runs that did not stop when asked, and say so to Prefect while it still listens."""
    stubborn = flow_run_processes(state.instance)
    end_processes(stubborn.values(), _GRACE_S)
    for run_id in stubborn:
        with contextlib.suppress(OSError):
            api.set_state(run_id, "CRASHED", "ended by specdec down", force=True)
