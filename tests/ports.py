"""Ports for servers that tests start, so that test processes side by side never want the same."""

import itertools
import os
import socket

_FIRST, _SHARE = 15_000, 1_000
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_numbers = itertools.cycle(range(_SHARE))


def free_ports(count: int) -> list[int]:
    """Return loopback ports that are free now, each time others.

    They are below those that the system gives to whoever asks for any port (32768 and up), so
    nothing takes them before the server is there.
    """
    found: list[int] = []
    while len(found) < count:
        port = _FIRST + _WORKER % 16 * _SHARE + next(_numbers)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
    return found
