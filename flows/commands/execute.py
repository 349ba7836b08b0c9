"""One command from its words to its exit code."""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from typing import TextIO, cast

from pydantic import ValidationError

from flows.commands.parser import build_parser
from specdec_core.config.settings import QUIET_ENVIRONMENT
from specdec_core.errors import ConfigError, SearchCancelledError, SpecDecError

Handler = Callable[[Namespace], int]


def execute(words: Sequence[str], is_interrupted: Callable[[], bool] = lambda: False) -> int:
    """Run the command that `words` spell; return its exit code, see `flows.cli`.

    With ``--json`` a failure is a JSON document on standard output as well.

    Args:
        words: The command line without the program's name.
        is_interrupted: Asked during long work, which ends once it is true.

    Raises:
        KeyboardInterrupt: if long work ended because of that.
    """
    # A machine reads one document on standard output, whatever a library prints there.
    is_json = "--json" in words
    out = sys.stdout if is_json else None
    try:
        args = build_parser().parse_args(words)
        _prepare_process()
        args.out, args.is_interrupted = sys.stdout, is_interrupted
        with redirect_stdout(sys.stderr) if is_json else nullcontext():
            return _load(args.handler)(args)
    except SearchCancelledError as error:
        raise KeyboardInterrupt from error
    except ConfigError as error:
        return _fail(out, error, 2)
    except ValidationError as error:
        return _fail(out, ConfigError(_settings_problems(error)), 2)
    except (SpecDecError, OSError) as error:
        return _fail(out, error, 1)


def _load(handler: str) -> Handler:
    module, _, name = handler.partition(":")
    return cast(Handler, getattr(importlib.import_module(module), name))


def _prepare_process() -> None:
    """Quiet libraries, warnings on standard error, and SIGTERM as an orderly end."""
    for name, value in QUIET_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    for package in ("specdec_core", "db", "tasks", "flows"):
        logging.getLogger(package).handlers[:] = [handler]
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(_number: int, _frame: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def _fail(out: TextIO | None, error: Exception, code: int) -> int:
    """Tell people why, and machines on `out` where there is one."""
    if out is not None:
        document = {"error": {"type": type(error).__name__, "message": str(error)}}
        out.write(json.dumps(document) + "\n")
    sys.stderr.write(f"error: {error}\n")
    return code


def _settings_problems(error: ValidationError) -> str:
    """One line per setting that the environment has wrong."""
    prefix = "SPECDEC_" if error.title == "Settings" else ""
    parts = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        shown = f"{prefix}{name.upper()}" if prefix else name
        parts.append(f"{shown}={problem['input']!r} is not valid: {problem['msg']}")
    return "; ".join(parts)
