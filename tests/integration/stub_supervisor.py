"""Runs the real supervisor over small stand-ins of the services: python stub_supervisor.py PORT.

Environment: STUB_API is what the stand-in of the REST API does: serve, die or never-start.
"""

import os
import sys

from flows.services import plan
from flows.services.__main__ import main
from flows.services.http import is_answering
from flows.services.plan import Ports, ServiceSpec
from specdec_core.config.settings import Settings

# Answers every request with an empty list: a Prefect without runs. The child holds on to the port.
SERVER = """
import http.server, os, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200); self.end_headers(); self.wfile.write(b"[]")
    do_GET = do_POST = answer
    def log_message(self, *a): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
if os.fork() == 0:
    time.sleep(600)
server.serve_forever()
"""
API = {
    "serve": SERVER,
    "die": SERVER.replace(
        "server.serve_forever()", "server.timeout = 1.5; server.handle_request()"
    ),
    "never-start": "raise SystemExit('no such database')",
}


def stand_in(name: str, code: str, port: int) -> ServiceSpec:
    url = f"http://127.0.0.1:{port}"
    command = (sys.executable, "-c", code, str(port))
    return ServiceSpec(
        name, name, command, lambda: is_answering(url), address=url, start_timeout_s=20.0
    )


def server_specs(_settings: Settings, ports: Ports) -> list[ServiceSpec]:
    api = API[os.environ["STUB_API"]]
    return [stand_in("prefect", SERVER, ports.prefect), stand_in("api", api, ports.api)]


def worker_spec(*_args: object) -> ServiceSpec:
    command = (sys.executable, "-c", "import time; time.sleep(600)")
    return ServiceSpec("worker", "worker", command, lambda: True)


if __name__ == "__main__":
    plan.server_specs = server_specs
    plan.worker_spec = worker_spec
    plan.deployment_commands = lambda: [(sys.executable, "-c", "pass")]
    sys.exit(main())
