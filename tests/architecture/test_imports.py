"""The direction of imports, read from every source file, and what stays free of heavy packages."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("specdec_core", "db", "tasks", "flows", "dashboards")

# What each part may import of the others: True for everything, or the modules named.
ALLOWED = {
    "specdec_core": {},
    "db": {"specdec_core": ("config", "records", "errors", "skip")},
    "tasks": {"specdec_core": True, "db": True},
    # Checking a user's suite, datastore or model reference needs no worker.
    "flows": {
        "specdec_core": (
            "config",
            "records",
            "errors",
            "skip",
            "data.suites",
            "retrieval.datastore",
            "models.reference",
            "models.packaged",
        ),
        "db": True,
        "tasks": True,
    },
    "dashboards": {
        "specdec_core": ("config", "records", "errors", "skip", "bench"),
        "db": True,
    },
}
FORBIDDEN_IN_CORE = {"prefect", "ray", "mlflow", "sqlalchemy", "alembic", "fastapi"}


def sources(part):
    return sorted((ROOT / part).rglob("*.py"))


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write absolute imports"
            yield node.module


@pytest.mark.parametrize("part", PARTS)
def test_imports_follow_the_table(part):
    wrong = []
    for path in sources(part):
        for module in imported_modules(path):
            other, _, rest = module.partition(".")
            if other not in PARTS or other == part:
                continue
            allowed = ALLOWED[part].get(other, ())
            if allowed is True or any(
                rest == name or rest.startswith(f"{name}.") for name in allowed
            ):
                continue
            wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert wrong == []


def test_the_library_knows_no_orchestration():
    wrong = []
    for path in sources("specdec_core"):
        for module in imported_modules(path):
            package = module.partition(".")[0]
            is_study = path.match("specdec_core/search/study.py")
            if package in FORBIDDEN_IN_CORE or (package == "optuna" and not is_study):
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert wrong == []


def test_names_of_a_search_outcome_come_from_their_own_module():
    wrong = []
    for folder in (*PARTS, "tests", "benchmarks"):
        for path in sources(folder):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module == "specdec_core.search.tss":
                    names = [alias.name for alias in node.names if alias.name != "TssSearch"]
                    wrong += [f"{path.relative_to(ROOT)}: {name}" for name in names]
    assert wrong == []


def test_no_wildcard_imports():
    wrong = [
        str(path)
        for part in PARTS
        for path in sources(part)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "modules",
    [
        "specdec_core.errors, specdec_core.skip, specdec_core.records",
        "specdec_core.config.settings, specdec_core.config.search, specdec_core.config.evaluation",
        "specdec_core.config.losses, specdec_core.config.training",
        "specdec_core.bench.metrics, specdec_core.bench.statistics",
        "specdec_core.bench.distribution, specdec_core.config.sampling, specdec_core.randomness",
        "specdec_core.data.suites, specdec_core.data.scoring, specdec_core.search.tss",
        "specdec_core.retrieval.datastore",
        "specdec_core.serving.controller, specdec_core.serving.rest, specdec_core.serving.batching",
        "db.store, db.api.app",
        "dashboards.app",
        "flows.cli",
    ],
)
def test_light_modules_import_without_torch(modules):
    heavy = "{'torch', 'ray', 'transformers'}"
    code = f"import sys, {modules}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


RANDOM_MODULES = ("random.", "np.random.", "numpy.random.", "torch.random.", "secrets.")
RANDOM_NAMES = {"manual_seed", "multinomial", "bernoulli", "rand", "randn", "randint", "randperm"}
IN_PLACE_DRAWS = {"uniform_", "normal_", "exponential_", "random_", "bernoulli_", "cauchy_"}


def is_random(text):
    """Say whether an attribute draws random numbers, or makes or seeds what does."""
    name = text.rpartition(".")[2]
    # The type of numpy's generators is what a function is handed.
    is_module = text.startswith(RANDOM_MODULES) and name != "Generator"
    is_torch = text.startswith("torch.") and name in RANDOM_NAMES
    return is_module or is_torch or name in IN_PLACE_DRAWS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("random.random", True),
        ("np.random.default_rng", True),
        ("torch.manual_seed", True),
        ("torch.cuda.manual_seed", True),
        ("row.exponential_", True),
        ("np.random.Generator", False),
        ("generator.shuffle", False),
    ],
)
def test_what_counts_as_a_source_of_randomness(text, expected):
    assert is_random(text) == expected


def test_randomness_has_one_source():
    """Nothing but its module makes, seeds or draws from a generator."""
    wrong = []
    for path in sources("specdec_core"):
        name = str(path.relative_to(ROOT / "specdec_core"))
        # Initial weights of test checkpoints come from torch's own initialisers, under fork_rng,
        # which leaves the global state as it was.
        if name in {"randomness.py", "models/tiny.py"}:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and is_random(ast.unparse(node)):
                wrong.append(f"{name}: {ast.unparse(node)}")
        wrong += [
            f"{name} imports {m}" for m in imported_modules(path) if m in {"random", "secrets"}
        ]
    assert wrong == []
