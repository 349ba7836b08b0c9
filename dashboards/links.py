"""Addresses: other services as a browser reaches them, and pages of our own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

from dashboards.queries import Detail
from db.cells import BenchmarkCell
from db.schemas import RunRecord, SkipProfile
from specdec_core.config.settings import Settings


@dataclass(frozen=True, slots=True)
class Link:
    """A place where more about a result is found."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Services:
    """Base addresses without a slash at the end; None where there is no page to link to."""

    prefect: str | None = None
    mlflow: str | None = None
    optuna_command: str | None = None

    @classmethod
    def of_environment(cls, settings: Settings, environment: Mapping[str, str]) -> Services:
        """Return the services named by the settings and the environment of this process.

        ``PREFECT_UI_URL`` and ``SPECDEC_MLFLOW_UI_URL`` are for networks in which a browser sees
        other addresses than this process. The address of an Optuna database may hold a password
        and is shown only where it is a local file.
        """
        api = environment.get("PREFECT_API_URL", "").removesuffix("/").removesuffix("/api")
        mlflow = environment.get("SPECDEC_MLFLOW_UI_URL") or settings.resolved_mlflow_url
        optuna = settings.resolved_optuna_url
        shown = optuna if optuna.startswith("sqlite:") else '"$SPECDEC_OPTUNA_URL"'
        return cls(
            prefect=_page(environment.get("PREFECT_UI_URL") or api),
            mlflow=_page(mlflow),
            optuna_command=f"optuna-dashboard {shown}",
        )


def run_links(services: Services, detail: Detail) -> tuple[Link, ...]:
    """Return where the run is found elsewhere."""
    run = detail.run
    found = [Link("REST: this run", f"/api/v1/runs/{quote(run.id, safe='')}")]
    if detail.profile is not None:
        found.append(Link("REST: this profile", profile_json(detail.profile)))
        found.append(Link("REST: what a serving system asks", resolve_url(detail.profile)))
    return (*found, *service_links(services, run))


def service_links(services: Services, run: RunRecord) -> Iterator[Link]:
    """Yield where tracker and orchestrator show a run."""
    if services.mlflow and run.tracker_id:
        page = f"{services.mlflow}/#/runs/{quote(run.tracker_id, safe='')}"
        yield Link("MLflow: this run", page)
    if services.prefect and run.flow_run_id:
        page = f"{services.prefect}/runs/flow-run/{quote(run.flow_run_id, safe='')}"
        yield Link("Prefect: this flow run", page)


def profile_page(profile: SkipProfile, filters: Mapping[str, str] | None = None) -> str:
    """Return the shareable address of the page with this profile selected."""
    return f"/?{urlencode({**(filters or {}), 'profile': profile.id})}"


def profile_json(profile: SkipProfile) -> str:
    """Return the REST address of a profile."""
    return f"/api/v1/profiles/{profile.id}"


def run_page(run_id: str) -> str:
    """Return the shareable address of the page with this run selected."""
    return f"/?{urlencode({'run': run_id})}"


def resolve_url(profile: SkipProfile) -> str:
    """Return the REST question whose answer is the active profile of the same key."""
    asked = {
        "target": profile.target,
        "domain": profile.domain,
        "drafter": profile.drafter,
        "dtype": profile.dtype,
    }
    return f"/api/v1/profiles/resolve?{urlencode(asked)}"


PROFILE_TABLES = ("history", "transitions", "verifications")
"""Tables of a profile, whatever run it came from."""


def csv_url(name: str, detail: Detail | None = None) -> str:
    """Return the address of a table's CSV."""
    if detail is None:
        return f"/dashboards/{name}.csv"
    query = {"run": detail.run.id}
    if name in PROFILE_TABLES and detail.profile is not None:
        query = {"profile": str(detail.profile.id)}
    return f"/dashboards/{name}.csv?{urlencode(query)}"


def _page(url: str) -> str | None:
    """A web address, or None for anything else, such as the path of a database."""
    return url.rstrip("/") if urlsplit(url).scheme in {"http", "https"} else None


def leaderboard_page(run_id: str) -> str:
    """Return the shareable address of a benchmark run's page."""
    return f"/leaderboard?{urlencode({'run': run_id})}"


def output_page(cell: BenchmarkCell, item_id: str) -> str:
    """Return the shareable address of one output of a benchmark cell."""
    return f"/outputs?{_output_query(cell, item_id)}"


def output_csv(cell: BenchmarkCell, item_id: str) -> str:
    """Return the address of its tokens as CSV."""
    return f"/dashboards/tokens.csv?{_output_query(cell, item_id)}"


def _output_query(cell: BenchmarkCell, item_id: str) -> str:
    asked = {"run": cell.run_id, "domain": cell.domain, "drafter": cell.drafter}
    return urlencode({**asked, "item": item_id})


def leaderboard_csv(run_id: str) -> str:
    """Return the address of a benchmark run's cells as CSV."""
    return f"/dashboards/leaderboard.csv?{urlencode({'run': run_id})}"
