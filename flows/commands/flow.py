"""`specdec flow`: runs a deployment through Prefect and follows it to its end."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from http import HTTPStatus
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from flows.commands.options import parse_assignments
from flows.commands.output import emit
from flows.commands.progress import ProgressDisplay
from flows.commands.results import find_run, render_run
from flows.services.http import RequestRefusedError
from flows.services.plan import POOL
from flows.services.prefect_api import PrefectApi
from flows.services.state import running_state
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, SpecDecError

_POLL_S = 1.0
_WAIT_HINT_S = 15.0
_FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


def flow(args: Namespace) -> int:
    """Run a deployment, show its log and progress, and its result from the store."""
    settings = Settings()
    api = PrefectApi(_api_url(settings), POOL)
    run = start(api, args.deployment, parse_assignments(args.param))
    page = f"{api.url.removesuffix('/api')}/runs/flow-run/{run['id']}"
    with ProgressDisplay() as display:
        display.say(f"flow run {run['name']} of {args.deployment}: {page}")
        try:
            ended = follow(api, run["id"], display)
        except KeyboardInterrupt:
            display.say(f"the run goes on; end it with: prefect flow-run cancel {run['id']}")
            raise
    state = ended["state"]
    stored = find_run(settings, run["id"])
    answer = {
        "flow_run_id": run["id"],
        "state": state["type"].lower(),
        "message": state["message"],
        "run": stored,
    }

    def render() -> RenderableType:
        if stored is not None and stored.status == "completed":
            return render_run(settings, stored)
        return Text(f"{state['name']}: {state['message'] or page}")

    emit(args, answer, render)
    return 0 if state["type"] == "COMPLETED" else 1


def start(api: PrefectApi, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Schedule a run of the deployment `name`; return the flow run.

    Raises:
        ConfigError: if there is no such deployment, or it does not take the parameters.
        SpecDecError: if the Prefect server does not answer.
    """
    try:
        deployment = api.deployment(name)
    except OSError as error:
        if isinstance(error, RequestRefusedError) and error.status == HTTPStatus.NOT_FOUND:
            known = ", ".join(api.deployment_names()) or "none, run `specdec up`"
            text = f"deployment {name!r} does not exist; there are: {known}"
            raise ConfigError(text) from error
        raise SpecDecError(
            f"the Prefect server at {api.url} does not answer ({error}): `specdec status`"
        ) from error
    known_parameters = deployment["parameter_openapi_schema"].get("properties", {})
    unknown = sorted(set(parameters) - set(known_parameters))
    if unknown:
        raise ConfigError(
            f"{name} takes no parameter {unknown[0]!r}: choose from {', '.join(known_parameters)}"
        )
    try:
        return api.start_run(deployment["id"], parameters)
    except RequestRefusedError as error:
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise SpecDecError(f"Prefect could not start {name}: {error}") from error
        raise ConfigError(f"{name} does not take these parameters: {error.detail}") from error


def follow(api: PrefectApi, run_id: str, display: ProgressDisplay) -> dict[str, Any]:
    """Show log and progress of a run until it ends; return the run.

    Raises:
        SpecDecError: if the Prefect server stops answering.
    """
    num_logs, state_name = 0, ""
    started = time.monotonic()
    has_hinted = False
    while True:
        try:
            run = api.run(run_id)
            num_logs += _show_logs(api, run_id, num_logs, display)
            _show_progress(api, run_id, display)
        except OSError as error:
            raise SpecDecError(
                f"the Prefect server at {api.url} stopped answering ({error}): see `specdec "
                "status`; the run may still go on"
            ) from error
        if run["state"]["name"] != state_name:
            state_name = run["state"]["name"]
            display.say(f"state: {state_name}")
        if run["state"]["type"] in _FINAL:
            num_logs += _show_logs(api, run_id, num_logs, display)
            return run
        is_waiting = run["state"]["type"] == "SCHEDULED"
        if is_waiting and not has_hinted and time.monotonic() - started > _WAIT_HINT_S:
            has_hinted = True
            display.say(_why_waiting(api))
        time.sleep(_POLL_S)


def _api_url(settings: Settings) -> str:
    state = running_state(settings.home_dir)
    url = os.environ.get("PREFECT_API_URL") or (state.prefect_api_url if state else None)
    if url is None:
        raise SpecDecError(
            "no services are running: start them with `specdec up`, or search without any: "
            "`specdec search`"
        )
    return url


def _show_logs(api: PrefectApi, run_id: str, offset: int, display: ProgressDisplay) -> int:
    lines = api.logs(run_id, offset)
    for line in lines:
        # Where an exception was logged its text is enough here; the page of the run has the rest.
        message = line["message"].partition("\nTraceback (most recent call last)")[0]
        display.say(f"{line['timestamp'][11:19]} {message}")
    return len(lines)


def _show_progress(api: PrefectApi, run_id: str, display: ProgressDisplay) -> None:
    bars = api.artifacts(run_id, "progress")
    if bars:
        display.show(float(bars[0]["data"] or 0.0), bars[0]["description"] or "running")


def _why_waiting(api: PrefectApi) -> str:
    if not api.online_workers():
        return f"no worker serves the pool {POOL}: `specdec status` shows why"
    return "waiting for the worker: another run is in progress"
