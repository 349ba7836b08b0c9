"""The verbs and flags of the `specdec` command."""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentParser
from typing import NoReturn

from flows.commands.options import add_config_flags
from specdec_core.config.benchmark import BenchmarkConfig
from specdec_core.config.calibration import CalibrationConfig
from specdec_core.config.domains import DOMAINS
from specdec_core.config.search import SearchConfig
from specdec_core.errors import ConfigError

# Fields of a benchmark that a proof does not need or sets itself.
VERIFY_LEAVES_OUT = frozenset({"methods", "verify", "repeats", "baseline", "min_effect"})

_EPILOG = """\
Settings come from environment variables SPECDEC_<NAME>, such as SPECDEC_HOME. With --json a command
prints one JSON document on standard output and everything else on standard error.
"""


class _Parser(ArgumentParser):
    """Complains with an exception, so that a machine can be told in its own way."""

    def error(self, message: str) -> NoReturn:
        """Show the usage and raise.

        Raises:
            ConfigError: always.
        """
        self.print_usage(sys.stderr)
        raise ConfigError(f"{self.prog}: {message}")


def build_parser() -> ArgumentParser:
    """Return the parser of the whole command line; wrong usage raises ConfigError."""
    parser = _Parser(
        prog="specdec",
        description="Search, store and serve layer-skip profiles for speculative decoding.",
        epilog=_EPILOG,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_search(verbs)
    _add_measurements(verbs)
    _add_store(verbs)
    _add_services(verbs)
    _add_inputs(verbs)
    return parser


def _add_search(verbs: argparse._SubParsersAction[ArgumentParser]) -> None:
    search = _verb(
        verbs,
        "search",
        "flows.commands.search:search",
        "search what the target may skip in a domain, in this process, without services",
    )
    search.add_argument("domain", help=f"task domain: {', '.join(DOMAINS)}")
    add_config_flags(search, SearchConfig, leave_out={"domain"}, has_domain_defaults=True)
    search.add_argument(
        "--retry-failed",
        action="store_true",
        help="try configurations again that an earlier run left out because they failed twice",
    )
    flow = _verb(
        verbs,
        "flow",
        "flows.commands.flow:flow",
        "run a Prefect deployment, follow it to its end and show its result",
    )
    flow.add_argument("deployment", help="such as tss-search/translation")
    flow.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="parameter of the flow for this run; may be repeated",
    )


def _add_measurements(verbs: argparse._SubParsersAction[ArgumentParser]) -> None:
    calibrate = _verb(
        verbs,
        "calibrate",
        "flows.commands.measure:calibrate",
        "measure step time over nodes per forward and layer statistics of a target",
    )
    calibrate.add_argument("domain", nargs="?", default="translation", help="prompts to use")
    add_config_flags(calibrate, CalibrationConfig, leave_out={"domain"})
    bench = _verb(
        verbs,
        "bench",
        "flows.commands.measure:bench",
        "compare drafting methods over domains on one target",
    )
    add_config_flags(bench, BenchmarkConfig)
    verify = _verb(
        verbs,
        "verify",
        "flows.commands.measure:verify",
        "prove that a drafting method leaves the target's outputs as they are",
    )
    verify.add_argument("method", metavar="METHOD", help="method or method:option=value,..")
    add_config_flags(verify, BenchmarkConfig, leave_out=VERIFY_LEAVES_OUT)


def _add_store(verbs: argparse._SubParsersAction[ArgumentParser]) -> None:
    profiles = _group(verbs, "profiles", "stored skip profiles")
    listing = _verb(
        profiles, "list", "flows.commands.store:list_profiles", "profiles, newest first"
    )
    for name in ("domain", "target", "drafter"):
        listing.add_argument(f"--{name}", help=f"only this {name}")
    listing.add_argument("--status", choices=("active", "retired", "rejected"))
    listing.add_argument("--limit", type=int, default=20, metavar="N", help="at most; default 20")
    show = _verb(profiles, "show", "flows.commands.store:show_profile", "one profile, whole")
    show.add_argument("id", type=int, help="profile id")
    resolve = _verb(
        profiles,
        "resolve",
        "flows.commands.store:resolve_profile",
        "the active profile that a serving system would get",
    )
    resolve.add_argument("--target", required=True, help="model reference or identity")
    resolve.add_argument("--domain", required=True, help="task domain")
    resolve.add_argument("--drafter", help="method or method:option=value,..")
    resolve.add_argument("--dtype", help="such as bfloat16")
    runs = _group(verbs, "runs", "stored runs of searches, calibrations and benchmarks")
    run_list = _verb(runs, "list", "flows.commands.store:list_runs", "runs, newest first")
    run_list.add_argument("--kind", help="only this kind, such as tss-search")
    run_list.add_argument("--status", choices=("running", "completed", "failed", "cancelled"))
    run_list.add_argument("--limit", type=int, default=20, metavar="N", help="at most; default 20")
    run_show = _verb(
        runs, "show", "flows.commands.store:show_run", "one run with configuration and result"
    )
    run_show.add_argument("id", help="run id")
    _verb(verbs, "sync", "flows.commands.store:sync", "send runs that MLflow missed to MLflow")


def _add_services(verbs: argparse._SubParsersAction[ArgumentParser]) -> None:
    up = _verb(
        verbs,
        "up",
        "flows.commands.services:up",
        "start Prefect server and worker, MLflow and the REST API",
    )
    up.add_argument("--foreground", action="store_true", help="stay attached; Ctrl-C ends all")
    up.add_argument(
        "--concurrent-runs",
        type=int,
        default=1,
        metavar="N",
        help="flow runs at once; default 1, because runs that share processors disturb each "
        "other's timing",
    )
    _verb(verbs, "status", "flows.commands.services:status", "each service, alive or dead")
    _verb(verbs, "down", "flows.commands.services:down", "end everything that `up` started")
    _verb(
        verbs,
        "env",
        "flows.commands.services:env",
        'variables for another shell: eval "$(specdec env)"',
    )


def _add_inputs(verbs: argparse._SubParsersAction[ArgumentParser]) -> None:
    data = _group(verbs, "data", "evaluation suites")
    _verb(data, "list", "flows.commands.inputs:list_data", "the suite that each domain would use")
    check = _verb(data, "check", "flows.commands.inputs:check_data", "check a suite of your own")
    check.add_argument("file", help="JSONL file")
    check.add_argument("--domain", help="domain it is for; default the one its items name")
    datastore = _group(verbs, "datastore", "texts that retrieving drafters draft from")
    build = _verb(
        datastore,
        "build",
        "flows.commands.datastore:build",
        "index texts with a model's tokenizer",
    )
    build.add_argument("folder", help="folder to write; must not exist", metavar="OUT")
    build.add_argument(
        "--from",
        dest="sources",
        nargs="+",
        required=True,
        metavar="SOURCE",
        help="suites (JSONL; prompts and references are taken), text files (UTF-8) or domains",
    )
    build.add_argument("--model", required=True, metavar="REF", help="whose tokenizer to use")
    show = _verb(datastore, "show", "flows.commands.datastore:show", "what one is made of")
    show.add_argument("folder", help="folder of a datastore")
    methods = _verb(
        verbs,
        "methods",
        "flows.commands.inputs:methods",
        "drafting methods, or the options of one",
    )
    methods.add_argument("method", nargs="?", metavar="METHOD")
    models = _group(verbs, "models", "target models")
    _verb(models, "list", "flows.commands.inputs:list_models", "packaged models")
    prepare = _verb(
        models,
        "prepare",
        "flows.commands.inputs:prepare_model",
        "find, check and convert models before they are needed",
    )
    prepare.add_argument(
        "refs",
        nargs="+",
        help="hf:org/name[@revision], path:/folder or pypi:name",
        metavar="REF",
    )


def _group(
    verbs: argparse._SubParsersAction[ArgumentParser], name: str, text: str
) -> argparse._SubParsersAction[ArgumentParser]:
    parser = verbs.add_parser(name, help=text, description=text)
    return parser.add_subparsers(title="verbs", metavar="VERB", required=True)


def _verb(
    verbs: argparse._SubParsersAction[ArgumentParser], name: str, handler: str, text: str
) -> ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(handler=handler)
    return parser
