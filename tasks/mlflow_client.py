"""The few MLflow calls that mirroring needs, idempotent and safe with odd values."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdec_core.errors import SpecDecError
from specdec_core.search.storage import without_password
from tasks.mirrored import ChildRun, CurvePoint, TrackedModel
from tasks.runtime import file_lock

RUN_TAG = "specdec.run_id"
KEY_TAG = "specdec.key"
_PARENT_TAG = "mlflow.parentRunId"
_SQLITE = "sqlite:///"
_MAX_PARAMETER = 500
_BATCH_PARAMETERS = 100
_BATCH_METRICS = 1000
_STATUS = {"completed": "FINISHED", "failed": "FAILED", "cancelled": "KILLED"}


class TrackerDownError(SpecDecError):
    """The tracker cannot be reached or refuses; results are in the store all the same."""


@dataclass(slots=True)
class MlflowMirror:
    """Writes runs to MLflow; every run is found again by its tags. Use `connect`."""

    client: Any
    artifact_root: str | None
    _experiments: dict[str, str] = field(default_factory=dict)

    @classmethod
    def connect(cls, url: str, home: Path) -> MlflowMirror:
        """Return a mirror; a database is migrated once, under a lock.

        Args:
            url: Tracking URI.
            home: State folder, for the lock and, where `url` is a database, for artefacts.

        Raises:
            TrackerDownError: if the tracker cannot be used.
        """
        # MLflow's own patience with a server that is down is minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        with _faults(without_password(url)), file_lock(home / "locks" / "mlflow"):
            from mlflow.tracking import MlflowClient

            logging.getLogger("mlflow").setLevel(logging.WARNING)
            if url.startswith(_SQLITE):
                _make_database(Path(url.removeprefix(_SQLITE)))
            client = MlflowClient(tracking_uri=url)
            client.search_experiments(max_results=1)
        is_served = url.startswith(("http://", "https://"))
        return cls(client, None if is_served else (home / "mlartifacts").as_uri())

    def parent(self, run_id: str, kind: str, name: str, parameters: Mapping[str, Any]) -> str:
        """Return the MLflow id of the parent run of `run_id`, made if it is missing."""
        with _faults(kind):
            experiment = self._experiment(kind)
            found = self._find(experiment, f"tags.`{RUN_TAG}` = '{run_id}'", without_key=True)
            if found is not None:
                return found
            run = self.client.create_run(
                experiment, tags={RUN_TAG: run_id}, run_name=f"{name} {run_id[:8]}"
            )
            mlflow_id = str(run.info.run_id)
            self._log(mlflow_id, parameters, {})
            return mlflow_id

    def child(self, parent_id: str, run_id: str, child: ChildRun) -> str:
        """Return the MLflow id of a child run, made if it is missing."""
        with _faults(child.name):
            experiment = self.client.get_run(parent_id).info.experiment_id
            query = f"tags.`{RUN_TAG}` = '{run_id}' and tags.`{KEY_TAG}` = '{child.key}'"
            found = self._find(experiment, query)
            if found is not None:
                return found
            tags = {RUN_TAG: run_id, KEY_TAG: child.key, _PARENT_TAG: parent_id}
            run = self.client.create_run(experiment, tags=tags, run_name=child.name)
            child_id = str(run.info.run_id)
            self._log(child_id, child.parameters, child.metrics)
            status = "FAILED" if child.is_failed else "FINISHED"
            self.client.set_terminated(child_id, status=status)
            return child_id

    def curve(self, parent_id: str, points: Sequence[CurvePoint]) -> None:
        """Add points to the curves of a parent run; a point that is there already is none more.

        MLflow keeps a value of one metric, step and time once, and the times are those of the
        training, not of this call.
        """
        from mlflow.entities import Metric

        logged = [
            Metric(_name(name), float(value), point.milliseconds, point.step)
            for point in points
            for name, value in point.metrics.items()
            if math.isfinite(value)
        ]
        with _faults(parent_id):
            for start in range(0, len(logged), _BATCH_METRICS):
                part = logged[start : start + _BATCH_METRICS]
                self.client.log_batch(parent_id, metrics=part)

    def model(self, parent_id: str, model: TrackedModel) -> str:
        """Return the version of a registered model, made if its content is not registered yet.

        A tracker that is a database is told where the files lie. A server takes no files of other
        machines: it gets a copy, as part of the logged model, where it asks for a version's files.
        """
        with _faults(model.name):
            query = f"name = '{model.name}' and tags.`{KEY_TAG}` = '{model.key}'"
            found = self.client.search_model_versions(query, max_results=1)
            if found:
                return str(found[0].version)
            run = self.client.get_run(parent_id)
            logged = self._logged_model(run.info.experiment_id, parent_id, model)
            is_served = self.artifact_root is None
            self._registered_model(model.name)
            version = self.client.create_model_version(
                model.name,
                logged.artifact_location if is_served else model.folder.absolute().as_uri(),
                run_id=parent_id,
                tags={KEY_TAG: model.key, **model.tags},
                model_id=logged.model_id,
                await_creation_for=0,
            )
            return str(version.version)

    def _registered_model(self, name: str) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self.client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def _logged_model(self, experiment: str, parent_id: str, model: TrackedModel) -> Any:
        """Log a draft with its figures, on a server with its files; return MLflow's entity."""
        from mlflow.entities import Metric

        made = self.client.create_logged_model(
            experiment,
            _model_name(f"{model.name}-{model.key[:12]}"),
            source_run_id=parent_id,
            tags={KEY_TAG: model.key, **model.tags},
            params=dict(model.parameters),
            model_type="draft",
        )
        if self.artifact_root is None:
            self.client.log_model_artifacts(made.model_id, str(model.folder))
        metrics = [
            Metric(_name(name), float(value), 0, 0, model_id=made.model_id, run_id=parent_id)
            for name, value in model.metrics.items()
            if value is not None and math.isfinite(value)
        ]
        if metrics:
            self.client.log_batch(parent_id, metrics=metrics)
        self.client.finalize_logged_model(made.model_id, "READY")
        return made

    def finish(
        self,
        parent_id: str,
        status: str,
        metrics: Mapping[str, float | None],
        files: Path | None = None,
    ) -> None:
        """Close a parent run with its headline metrics and the files of a folder, if it exists."""
        with _faults(parent_id):
            self._log(parent_id, {}, metrics)
            if files is not None and files.is_dir():
                self.client.log_artifacts(parent_id, str(files))
            self.client.set_terminated(parent_id, status=_STATUS[status])

    def _experiment(self, kind: str) -> str:
        name = f"specdec-{kind}"
        if name not in self._experiments:
            found = self.client.get_experiment_by_name(name)
            root = self.artifact_root
            self._experiments[name] = str(
                found.experiment_id
                if found is not None
                else self.client.create_experiment(
                    name, artifact_location=f"{root}/{name}" if root else None
                )
            )
        return self._experiments[name]

    def _find(self, experiment: str, query: str, *, without_key: bool = False) -> str | None:
        for run in self.client.search_runs([experiment], filter_string=query, max_results=1000):
            if not (without_key and KEY_TAG in run.data.tags):
                return str(run.info.run_id)
        return None

    def _log(
        self,
        mlflow_id: str,
        parameters: Mapping[str, Any],
        metrics: Mapping[str, float | None],
    ) -> None:
        """Log in batches; long values go to artefacts, values that are no numbers to a tag."""
        from mlflow.entities import Metric, Param, RunTag

        texts = {_name(name): str(value) for name, value in parameters.items() if value is not None}
        long = {name: text for name, text in texts.items() if len(text) > _MAX_PARAMETER}
        for name, text in long.items():
            self.client.log_text(mlflow_id, text, f"parameters/{name}.txt")
            note = f"... ({len(text)} characters: parameters/{name}.txt)"
            texts[name] = text[: _MAX_PARAMETER - len(note)] + note
        given = {_name(name): value for name, value in metrics.items() if value is not None}
        odd = sorted(name for name, value in given.items() if not math.isfinite(value))
        logged = [
            Metric(name, float(value), 0, 0) for name, value in given.items() if name not in odd
        ]
        tags = [RunTag("specdec.not_finite", ", ".join(odd))] if odd else []
        params = [Param(name, text) for name, text in texts.items()]
        if logged or tags:
            self.client.log_batch(mlflow_id, metrics=logged, tags=tags)
        for start in range(0, len(params), _BATCH_PARAMETERS):
            self.client.log_batch(mlflow_id, params=params[start : start + _BATCH_PARAMETERS])


def _make_database(path: Path) -> None:
    """Make a tracking database, unless there is one; `path` never holds a half-made one.

    MLflow neither makes its tables in one transaction nor goes on with those of a process that
    was ended meanwhile.
    """
    from mlflow.tracking import MlflowClient

    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return
    begun = path.with_name(f"{path.name}.part")
    for left in (begun, begun.with_name(f"{begun.name}-journal")):
        left.unlink(missing_ok=True)
    MlflowClient(tracking_uri=f"{_SQLITE}{begun}").search_experiments(max_results=1)
    with suppress(FileExistsError):  # a server of MLflow's own was faster
        path.hardlink_to(begun)
    begun.unlink()


def _model_name(text: str) -> str:
    """Return a name without the characters that MLflow refuses in names of models."""
    return re.sub(r"[/:.%\"']", "-", text)


def _name(text: str) -> str:
    """Return a name that MLflow accepts."""
    return re.sub(r"[^\w\-./ ]", "_", text)[:200]


@contextmanager
def _faults(what: str) -> Iterator[None]:
    """Turn every fault of MLflow, its database or its server into a TrackerDownError."""
    try:
        yield
    except TrackerDownError:
        raise
    except Exception as error:
        raise TrackerDownError(f"{what}: {type(error).__name__}: {str(error)[:300]}") from error
