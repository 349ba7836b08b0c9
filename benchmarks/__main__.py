"""``python -m benchmarks [NAME ..]``: run benchmarks and print the table of stored results."""

from __future__ import annotations

import argparse
import importlib
import json

from benchmarks.common import RESULTS

NAMES = (
    "threads",
    "forward",
    "quantization",
    "autoregressive",
    "drafting",
    "methods",
    "equal_overhead",
    "batching",
    "data_generation",
    "search",
    "search_cost",
    "prompt_states",
    "loss_memory",
    "orchestration",
    "resolve",
    "llama_cpp",
)
# Long, and no timings: run by name.
ON_REQUEST = ("acceptance", "bounding", "router", "tree_limit")


def main() -> None:
    """Run the named benchmarks (all by default), then print every stored figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        choices=[*NAMES, *ON_REQUEST, []],
        help=f"default: all but {', '.join(ON_REQUEST)}",
    )
    names = parser.parse_args().names or NAMES
    for name in names:
        print(f"benchmark {name} ..", flush=True)
        importlib.import_module(f"benchmarks.{name}").run()
    for path in sorted(RESULTS.glob("*.json")):
        document = json.loads(path.read_text())
        print(f"\n{document['benchmark']}  ({document['hardware']}, {document['finished_at']})")
        _print(document["figures"], indent=2)


def _print(value: object, indent: int, name: str = "") -> None:
    if isinstance(value, dict):
        if name:
            print(f"{' ' * indent}{name}")
        for key, inner in value.items():
            _print(inner, indent + 2, str(key))
    else:
        text = f"{value:.4g}" if isinstance(value, float) else json.dumps(value)
        print(f"{' ' * indent}{name:32s} {text[:120]}")


if __name__ == "__main__":
    main()
