"""The store: one database, opened, migrated and checked, with a repository per subject."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from db.claims import Claims
from db.engine import Database
from db.migrate import migrate, schema_revision
from db.repositories.baselines import BaselineRepository
from db.repositories.benchmarks import BenchmarkRepository
from db.repositories.calibrations import CalibrationRepository
from db.repositories.checkpoints import CheckpointRepository
from db.repositories.evaluations import EvaluationRepository
from db.repositories.profiles import ProfileRepository
from db.repositories.runs import RunRepository
from db.repositories.suites import SuiteRepository
from db.repositories.targets import TargetRepository
from db.repositories.trainings import TrainingRepository


class Store:
    """Results of every run. Open it with `Store.open`, once per process.

    A store may be used from many threads, but not across a fork; other processes open their own.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.targets = TargetRepository(database)
        self.suites = SuiteRepository(database)
        self.runs = RunRepository(database)
        self.evaluations = EvaluationRepository(database)
        self.profiles = ProfileRepository(database)
        self.calibrations = CalibrationRepository(database)
        self.benchmarks = BenchmarkRepository(database)
        self.baselines = BaselineRepository(database)
        self.trainings = TrainingRepository(database)
        self.checkpoints = CheckpointRepository(database)
        self.claims = Claims(database)

    @classmethod
    def open(cls, url: str) -> Store:
        """Open the database at `url`; its folder and schema are made where they are missing.

        Args:
            url: ``sqlite:///path.db`` or ``postgresql://user:password@host/database``.

        Raises:
            ConfigError: if the URL cannot be used.
            StoreError: if the database cannot be opened, or its schema is newer than this code.
        """
        database = Database.connect(url)
        try:
            migrate(database)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def schema_revision(self) -> str | None:
        """Return the schema revision in the database; fails if it cannot be reached.

        Raises:
            StoreError: if the database cannot be reached.
        """
        with self.database.read() as connection:
            return schema_revision(connection)

    def close(self) -> None:
        """Close every connection and give up every claim; the store can be opened again."""
        self.claims.close()
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
