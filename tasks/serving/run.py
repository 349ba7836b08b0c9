"""The server's process."""

from __future__ import annotations

import uvicorn

from specdec_core.config.serving import ServeConfig
from specdec_core.config.settings import Settings
from tasks.runtime import LogLine
from tasks.serving.app import NOTICE, create_app
from tasks.serving.setup import open_serving


def run_server(config: ServeConfig, settings: Settings, notify: LogLine) -> None:
    """Serve until the process is interrupted or terminated.

    Raises:
        ConfigError: if something cannot be used.
    """
    with open_serving(config, settings, notify) as serving:
        app = create_app(serving, config, settings.api_key)
        notify(f"specdec serve is {NOTICE}")
        notify(
            f"http://{config.host}:{config.port}/v1/completions and /v1/chat/completions of "
            f"{serving.info.reference}"
        )
        uvicorn.run(app, host=config.host, port=config.port, log_level="warning")
