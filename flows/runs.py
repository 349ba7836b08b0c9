"""What the flows share: names of their runs and which failures are tried again."""

from __future__ import annotations

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import flow_run

from specdec_core.errors import ConfigError, SearchCancelledError, SpecDecError


def run_name(*names: str) -> str:
    """Return a name for the current run from the parameters that were given."""
    parameters = flow_run.parameters
    parts = [str(parameters[name]) for name in names if parameters.get(name) is not None]
    return " ".join(parts) or "default"


def is_worth_retrying(_task: Task[..., object], _run: TaskRun, state: State[object]) -> bool:
    """True for failures that a second try can cure: not wrong input, not a wish to stop."""
    try:
        state.result()
    except (ConfigError, SearchCancelledError):
        return False
    except SpecDecError:
        return True
    except Exception:  # noqa: BLE001 - the kinds of failure that nothing is known about
        return False
    return False
