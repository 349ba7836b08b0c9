"""Tables of README and of docs, written from the stored results and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.common import RESULTS
from benchmarks.exported import Documents, table
from benchmarks.results_page import SEARCHES, result_tables
from benchmarks.suites import SPEC_BENCH
from benchmarks.trainings_page import TRAININGS, training_tables

Figures = Mapping[str, Any]
_ROOT = RESULTS.parents[1]
README = _ROOT / "README.md"
PAGE = _ROOT / "docs" / "measured.md"
SEARCHED = _ROOT / "docs" / "results.md"
TRAINED = _ROOT / "docs" / "training-results.md"
_BEGIN, _END = "<!-- figures: python -m benchmarks.pages -->", "<!-- end of figures -->"
_MODELS = {"pypi:smollm2-135m": "SmolLM2 135M", "pypi:gemma3-270m": "Gemma 3 270M"}
_OWN = "speedup_over_autoregressive"
_LOOKUP = "speedup_over_library_prompt_lookup"


def load_results() -> dict[str, Any]:
    """Return the figures of every stored benchmark by name."""
    documents = (json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json")))
    return {document["benchmark"]: document["figures"] for document in documents}


def readme_with_figures(text: str, results: Figures) -> str:
    """Return the README with the table between its two marks made anew.

    Raises:
        ValueError: if the marks are missing.
    """
    before, after = _around_marks(text, "README")
    parts = (_loops, _methods, _llama_cpp, _training, _system)
    rows = [row for part in parts for row in part(results)]
    return before + table(("what", "figure", "95 % interval", "file"), rows) + after


def searched_page(text: str, documents: Documents) -> str:
    """Return docs/results.md with the tables between its two marks made anew.

    Raises:
        ValueError: if the marks are missing.
    """
    before, after = _around_marks(text, "docs/results.md")
    return before + result_tables(documents) + after


def trained_page(text: str, documents: Documents) -> str:
    """Return docs/training-results.md with the tables between its two marks made anew.

    Raises:
        ValueError: if the marks are missing, or for a document that is not about drafts.
    """
    before, after = _around_marks(text, "docs/training-results.md")
    return before + training_tables(documents) + after


def measured_page(results: Figures) -> str:
    """Return docs/measured.md: what README's table summarises, cell by cell."""
    methods = results["methods"]
    sections = [
        "# Measured\n",
        "Made by `python -m benchmarks.pages` from the files under `benchmarks/results/`, which\n"
        "say on what machine, from which commit and by which command each was measured. Ratios\n"
        "are of tokens per second, side by side in one run, with 95 % bootstrap intervals.\n",
    ]
    for model, figures in methods.items():
        sections += _method_tables(_MODELS.get(model, model), figures)
    for model, figures in results["forward"].items():
        sections += [f"## Step time by nodes, {_MODELS.get(model, model)} (forward.json)\n"]
        sections += [_step_table(figures)]
    return "\n".join(sections)


def update() -> None:
    """Write all four files."""
    results = load_results()
    README.write_text(readme_with_figures(README.read_text(), results))
    PAGE.write_text(measured_page(results))
    SEARCHED.write_text(searched_page(SEARCHED.read_text(), SEARCHES.load()))
    TRAINED.write_text(trained_page(TRAINED.read_text(), TRAININGS.load()))


def _around_marks(text: str, where: str) -> tuple[str, str]:
    """What stays of a page: up to the first mark with its line, and from the second one on."""
    before, has_begin, rest = text.partition(_BEGIN)
    _, has_end, after = rest.partition(_END)
    if not has_begin or not has_end:
        raise ValueError(f"{where} needs the lines {_BEGIN!r} and {_END!r} around its tables")
    return f"{before}{_BEGIN}\n", f"\n{_END}{after}"


def _loops(results: Figures) -> Iterator[Sequence[str]]:
    for model, name in _MODELS.items():
        figures = results["autoregressive"][model]
        title = f"our plain loop over `transformers` greedy, {name}"
        yield title, *_ratio(figures["speedup_over_library"]), "`autoregressive.json`"
        int8 = figures["bfloat16, int8 weights (lossy)"]["speedup_over_our_bfloat16"]
        yield "the same loop on int8 weights (lossy) over itself in bfloat16", *_ratio(int8), ""


def _methods(results: Figures) -> Iterator[Sequence[str]]:
    for model, name in _MODELS.items():
        figures = results["methods"][model]
        means = figures["mean_over_spec_bench"]
        best = _best({method: mean[_OWN] for method, mean in means.items()})
        title = f"`{best}`, {name}, mean of the six Spec-Bench suites"
        yield f"{title}, over our plain loop", *_ratio(means[best][_OWN]), "`methods.json`"
        yield "the same, over `transformers` prompt lookup", *_ratio(means[best][_LOOKUP]), ""
        for suite in ("summarization", "gsm8k"):
            cell = figures["cells"][suite][best][_OWN]
            yield f"the same, {suite} alone, over our plain loop", *_ratio(cell), ""


def _llama_cpp(results: Figures) -> Iterator[Sequence[str]]:
    figures = results["llama_cpp"]
    means = {
        method: mean
        for method, mean in figures["mean_over_spec_bench"].items()
        if not method.startswith("llama.cpp")
    }
    best = _best({method: mean["speedup_over_llama_cpp"] for method, mean in means.items()})
    for method in ("none", best):
        title = "our plain loop" if method == "none" else f"`{method}`"
        greedy = means[method]["speedup_over_llama_cpp"]
        yield (
            f"{title} over llama.cpp greedy, SmolLM2, six suites",
            *_ratio(greedy),
            "`llama_cpp.json`",
        )
    lookup = means[best]["speedup_over_llama_cpp_prompt_lookup"]
    yield "the same over llama.cpp's prompt lookup", *_ratio(lookup), ""


def _training(results: Figures) -> Iterator[Sequence[str]]:
    data = results["data_generation"]
    yield (
        f"answers for training in batches of {data['batch_size']} over one by one, tokens a second",
        *_ratio(data["response_tokens_per_s"]),
        "`data_generation.json`",
    )
    for loss, figures in results["loss_memory"]["losses"].items():
        title = f"memory-bounded loss `{loss}` over the plain one at [8, 512, 49152]"
        yield f"{title}: peak memory", *_ratio(figures["peak_memory_ratio"]), "`loss_memory.json`"
        yield "the same: seconds", *_ratio(figures["seconds_ratio"]), ""


def _system(results: Figures) -> Iterator[Sequence[str]]:
    time_ratio = results["orchestration"]["time_ratio"]
    yield (
        "evaluations through Ray, SQL, Optuna and MLflow over bare ones, seconds",
        *_ratio(time_ratio),
        "`orchestration.json`",
    )
    for name, modes in results["batching"].items():
        replay = modes["batch 16, replay"]
        low, high = replay["share_range"]
        yield (
            f"selection evaluation in one batch over batch 1, seconds, {name.partition(':')[2]}",
            f"{replay['share_of_batch_1']:.2f}",
            f"{low:.2f} to {high:.2f} (range)",
            "`batching.json`",
        )
    for name, figures in results["search_cost"].items():
        yield (
            "seconds of the evaluations of a translation search, beam 4, depth 4: one request at a "
            f"time over batched, replayed and shared, {name.removeprefix('pypi:')}",
            *_ratio(figures["ways"]["plain"]["over_full"]),
            "`search_cost.json`",
        )
    resolve = results["resolve"]["whole_answers"]
    yield (
        "`resolve` over REST, 8 clients, while a search writes: requests a second, 99th percentile",
        f"{resolve['requests_per_s']:.0f}, {resolve['p99_ms']:.0f} ms",
        "",
        "`resolve.json`",
    )
    search = results["search"]
    yield (
        "`make search` after set-up, and again",
        f"{search['make_search_s']:.0f} s, {search['second_make_search_s']:.0f} s",
        "",
        "`search.json`",
    )


def _method_tables(name: str, figures: Figures) -> Iterator[str]:
    means, cells = figures["mean_over_spec_bench"], figures["cells"]
    measured = (
        f"{figures['requests_per_suite']} requests of {figures['new_tokens']} tokens per suite"
    )
    yield f"## Methods on {name} (methods.json, {measured})\n"
    yield "Speed over our own plain loop; the mean is that of the six Spec-Bench suites.\n"
    yield table(
        ("method", "mean", "over library greedy", "over library lookup", *cells),
        [
            (
                f"`{method}`",
                _with_interval(mean[_OWN]),
                f"{mean['speedup_over_library_greedy']['estimate']:.2f}",
                f"{mean[_LOOKUP]['estimate']:.2f}",
                *(f"{cell[method][_OWN]['estimate']:.2f}" for cell in cells.values()),
            )
            for method, mean in means.items()
        ],
    )
    yield (
        "Tokens per step (decoding efficiency) by suite; drafting's share of decode time over the\n"
        "six suites; outputs identical to the plain loop's.\n"
    )
    yield table(
        ("method", "draft share", "identical", *cells),
        [
            (
                f"`{method}`",
                _draft_share(cells, method),
                _identical(cells, method),
                *(f"{cell[method]['decoding_efficiency'] or 1:.2f}" for cell in cells.values()),
            )
            for method in means
        ],
    )


def _draft_share(cells: Figures, method: str) -> str:
    shares = [cells[suite][method]["share_of_decode_time"]["draft"] for suite in SPEC_BENCH]
    return f"{sum(shares) / len(shares):.1%}"


def _identical(cells: Figures, method: str) -> str:
    proofs = [cell[method]["certificate"] for cell in cells.values()]
    same = sum(proof["num_identical"] for proof in proofs)
    return f"{same} of {sum(proof['num_requests'] for proof in proofs)}"


def _step_table(figures: Figures) -> str:
    steps = {name: value for name, value in figures.items() if name.endswith(" nodes")}
    columns = list(next(iter(steps.values())))
    return table(
        ("nodes", *(column.replace("_", " ") for column in columns)),
        [
            (name.removesuffix(" nodes"), *(f"{step[column]:.2f}" for column in columns))
            for name, step in steps.items()
        ],
    )


def _best(ratios: Mapping[str, Figures]) -> str:
    return max(ratios, key=lambda method: ratios[method]["estimate"])


def _ratio(ratio: Figures) -> tuple[str, str]:
    return f"{ratio['estimate']:.2f}", f"{ratio['low']:.2f} to {ratio['high']:.2f}"


def _with_interval(ratio: Figures) -> str:
    return "{} ({})".format(*_ratio(ratio))


if __name__ == "__main__":
    update()
