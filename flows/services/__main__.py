"""The supervisor as a process of its own: python -m flows.services, started by `specdec up`."""

from __future__ import annotations

import logging
import os
import sys

from flows.services.processes import INSTANCE_VARIABLE
from flows.services.supervisor import Supervisor
from specdec_core.config.settings import Settings


def main() -> int:
    """Run the supervisor of the settings in the environment, logging to standard error."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    supervisor = Supervisor(
        Settings(),
        os.environ[INSTANCE_VARIABLE],
        logging.getLogger("specdec.supervisor").info,
        concurrent_runs=int(os.environ.get("SPECDEC_CONCURRENT_RUNS", "1")),
    )
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main())
