"""The server's process."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import uvicorn

from specdec_core.config.serving import ServeConfig
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from tasks.runtime import LogLine
from tasks.serving.app import NOTICE, create_app
from tasks.serving.setup import Serving, open_serving

OnReady = Callable[[dict[str, object]], None]
"""Told once, when requests are answered: address, model, drafter and process."""


def run_server(
    config: ServeConfig,
    settings: Settings,
    notify: LogLine,
    on_ready: OnReady = lambda _document: None,
) -> None:
    """Serve until the process is interrupted or terminated.

    The address is taken before anything is loaded, and answers once everything is.

    Args:
        config: What to serve, and where.
        settings: Caches, device, threads, store, key.
        notify: Takes one line for the user.
        on_ready: Takes what a program that started this one must know.

    Raises:
        ConfigError: if something cannot be used; if the address cannot, before any model is loaded.
    """
    with (
        take_address(config.host, config.port) as place,
        open_serving(config, settings, notify) as serving,
    ):

        def tell() -> None:
            document = ready_document(config, serving)
            notify(f"specdec serve is {NOTICE}")
            notify(
                f"{document['address']}/v1/completions and /v1/chat/completions of "
                f"{document['model']}"
            )
            on_ready(document)

        app = create_app(serving, config, settings.api_key)
        server = _Server(uvicorn.Config(app, log_level="warning"), tell)
        try:
            server.run(sockets=[place])
        except OSError as error:  # another process listened first
            raise _unusable(config.host, config.port, error) from error


def take_address(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address; clients are refused until it listens.

    Raises:
        ConfigError: if the address is in use, or not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    place = socket.socket(family, socket.SOCK_STREAM)
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind((host, port))
    except OSError as error:
        place.close()
        raise _unusable(host, port, error) from error
    return place


def ready_document(config: ServeConfig, serving: Serving) -> dict[str, object]:
    """Return what a program needs to know to use the server."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    return {
        "event": "ready",
        "address": f"http://{host}:{config.port}",
        "model": serving.info.reference,
        "identity": serving.info.identity,
        "dtype": serving.info.dtype,
        "drafter": config.drafter,
        "pid": os.getpid(),
    }


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def _unusable(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(
        f"cannot listen on {host}, port {port} ({error.strerror or error}): end what uses it, or "
        "choose another with --port or --host"
    )
