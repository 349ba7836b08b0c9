"""`specdec generate` and `specdec serve`: profiles tried by hand and by any client."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import Any

from flows.commands.options import given_flags
from flows.commands.output import emit, note
from specdec_core.config.build import build_config
from specdec_core.config.serving import GenerateConfig, ServeConfig
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError


def generate(args: Namespace) -> int:
    """Answer one prompt, shown as it comes; what was skipped and why is told behind it."""
    config = build_config(GenerateConfig, {}, given_flags(args, GenerateConfig))
    prompt = _prompt(args)
    from tasks.serving.once import answer_once  # loads torch

    def show(piece: str) -> None:
        args.out.write(piece)
        args.out.flush()

    silent = args.json
    answer = answer_once(
        config,
        prompt,
        Settings(),
        note,
        emit=(lambda _piece: None) if silent else show,
        should_stop=args.is_interrupted,
    )
    if silent:
        emit(args, answer, str)
    else:
        args.out.write("\n")
        args.out.flush()
        note(_summary(answer))
    return 0


def serve(args: Namespace) -> int:
    """Serve one target by OpenAI's completions API until it is interrupted.

    With ``--json`` one line says that it is ready, and where.
    """
    config = build_config(ServeConfig, {}, given_flags(args, ServeConfig))
    from tasks.serving.run import run_server  # loads torch

    def tell(document: dict[str, object]) -> None:
        if args.json:
            args.out.write(json.dumps(document) + "\n")
            args.out.flush()

    run_server(config, Settings(), note, tell)
    return 0


def _prompt(args: Namespace) -> str:
    text: str | None = args.prompt
    if text is None or text == "-":
        if sys.stdin is None or (text is None and sys.stdin.isatty()):
            raise ConfigError("no prompt: give it as an argument, or on standard input")
        text = sys.stdin.read()
    if not text.strip():
        raise ConfigError("the prompt is empty: write some text")
    return text


def _summary(answer: dict[str, Any]) -> str:
    parts = [f"{answer['num_tokens']} tokens"]
    if answer["tokens_per_s"] is not None:
        parts.append(f"{answer['tokens_per_s']:.1f} tokens/s")
    if answer["acceptance_length"] is not None:
        parts.append(f"acceptance length {answer['acceptance_length']:.2f}")
    skipped = f"skips {answer['skip']}" if answer["skip"] else "dense"
    if answer["prefill"] == "dense":
        skipped += " after dense prefill"
    domain = answer["domain"] or "none"
    return f"{', '.join(parts)}; {skipped}: {answer['why']} (domain {domain})"
