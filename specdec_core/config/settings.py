"""Where things run and are kept: one settings class, environment prefix ``SPECDEC_``."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from specdec_core.config.dtype import DTYPE_HELP

KernelChoice = Literal["own", "torch"]

# What every child process needs to stay quiet and to share cores without spinning.
QUIET_ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_API_URL": "/api",
    "RAY_USAGE_STATS_ENABLED": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_WAIT_POLICY": "PASSIVE",
    # A short spin before sleeping bridges the gap between two operators, no more.
    "GOMP_SPINCOUNT": "10000",
}


class Settings(BaseSettings):
    """Deployment settings; every field can be set as ``SPECDEC_<NAME>``."""

    model_config = SettingsConfigDict(env_prefix="SPECDEC_", extra="ignore", frozen=True)

    home: Path = Field(Path(".specdec"), description="state folder: databases, logs, pid files")
    cache: Path = Field(
        Path("~/.cache/specdec-lab"), description="converted models and other rebuildable files"
    )
    data: Path | None = Field(None, description="folder of evaluation suites (JSONL)")
    database_url: str | None = Field(None, description="results; default SQLite under home")
    optuna_url: str | None = Field(None, description="Optuna storage; default SQLite under home")
    mlflow_url: str | None = Field(None, description="tracking URI; default SQLite under home")
    ray_address: str = Field("local", description="Ray cluster address, 'local' starts one here")
    num_workers: int = Field(1, ge=1, description="model workers of a pool")
    threads: int = Field(
        default_factory=lambda: os.cpu_count() or 1, ge=1, description="torch threads per worker"
    )
    device: str = Field("auto", description="'auto', 'cpu' or 'cuda[:n]'")
    dtype: str = Field("auto", description=DTYPE_HELP)
    prompt_states_gib: float = Field(
        2.0,
        ge=0.0,
        description="most memory in which a worker keeps what prompts became, for the next skip "
        "set to share, GiB; 0 shares nothing",
    )
    native: bool = Field(
        True,
        description="compile own kernels where the processor has AVX-512 bfloat16, and capture "
        "forward passes on CUDA",
    )
    host: str = Field("127.0.0.1", description="address the services listen on")
    api_port: int = Field(8000, ge=1, le=65535)
    prefect_port: int = Field(4200, ge=1, le=65535)
    mlflow_port: int = Field(5000, ge=1, le=65535)
    api_key: str | None = Field(None, description="if set, REST requests must send X-API-Key")

    @field_validator("data", "database_url", "optuna_url", "mlflow_url", "api_key", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        """Compose files pass an empty string where a variable is not set."""
        return None if value == "" else value

    @cached_property
    def home_dir(self) -> Path:
        """Absolute state folder."""
        return self.home.expanduser().absolute()

    @cached_property
    def cache_dir(self) -> Path:
        """Absolute cache folder."""
        return self.cache.expanduser().absolute()

    @property
    def kernels(self) -> KernelChoice:
        """Whose kernels targets run on, where both can."""
        return "own" if self.native else "torch"

    @property
    def resolved_database_url(self) -> str:
        """SQLAlchemy URL of our own store."""
        return self.database_url or f"sqlite:///{self.home_dir / 'specdec.db'}"

    @property
    def resolved_optuna_url(self) -> str:
        """SQLAlchemy URL of the Optuna storage."""
        return self.optuna_url or f"sqlite:///{self.home_dir / 'optuna.db'}"

    @property
    def resolved_mlflow_url(self) -> str:
        """MLflow tracking URI."""
        return self.mlflow_url or f"sqlite:///{self.home_dir / 'mlflow.db'}"
