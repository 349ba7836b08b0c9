"""The tables: typed SQLAlchemy models, read and written through the repositories only.

Every table is prefixed ``specdec_`` so that the schema may share a database with neighbours.
`SCHEMA_REVISION` names the Alembic revision that these models describe. Importing this package
registers every table.
"""

from __future__ import annotations

from db.models.base import (
    SCHEMA_REVISION,
    TABLE_PREFIX,
    VERSION_TABLE,
    Base,
)
from db.models.catalogue import (
    FLOW_RUN_KEY,
    RunTable,
    SuiteTable,
    TargetTable,
)
from db.models.evaluations import (
    EvaluationTable,
    RunEvaluationTable,
    SampleTable,
)
from db.models.measurements import (
    CALIBRATION_KEY,
    CELL_KEY,
    BaselineTable,
    BenchmarkCellTable,
    CalibrationTable,
)
from db.models.profiles import (
    PROFILE_KEY,
    ProfileTransitionTable,
    ProfileVerificationTable,
    SkipProfileTable,
)
from db.models.training import (
    DraftCheckpointTable,
    TrainingTable,
)

__all__ = [
    "CALIBRATION_KEY",
    "CELL_KEY",
    "FLOW_RUN_KEY",
    "PROFILE_KEY",
    "SCHEMA_REVISION",
    "TABLE_PREFIX",
    "VERSION_TABLE",
    "Base",
    "BaselineTable",
    "BenchmarkCellTable",
    "CalibrationTable",
    "DraftCheckpointTable",
    "EvaluationTable",
    "ProfileTransitionTable",
    "ProfileVerificationTable",
    "RunEvaluationTable",
    "RunTable",
    "SampleTable",
    "SkipProfileTable",
    "SuiteTable",
    "TargetTable",
    "TrainingTable",
]
