"""Our decode loop beside llama.cpp on the same bfloat16 weights and the same prompt tokens.

One process holds both. Each request is decoded by every method in turn, the order changing from
request to request; one request per suite warms up. Both sides are timed alike: tokens after the
first over the seconds from the first token to the last, the prompt left out. llama.cpp is driven
by the generator of llama-cpp-python, as its users do, with its own prompt lookup as second peer.
Measure on an idle machine: both sides' threads wait for each other many times a token, so other
work distorts the ratio; the load before the first request is stored with the figures.

Without llama-cpp-python (`pip install -e .[llama]`) nothing is measured or stored.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import order_of, write
from benchmarks.gguf_weights import write_bfloat16
from benchmarks.suites import SPEC_BENCH, Prompts, load_prompts
from specdec_core.bench.statistics import RequestTimes, speedup_interval
from specdec_core.bench.strata import mean_domain_speedup
from specdec_core.config.drafters import parse_drafter
from specdec_core.config.settings import Settings
from specdec_core.decoding import DrafterContext, make_drafter
from specdec_core.decoding.drafter import Drafter
from specdec_core.decoding.loop import generate
from specdec_core.models.loading import load_target
from specdec_core.models.packaged import PACKAGED, find_parts
from specdec_core.models.reference import resolve_model
from specdec_core.models.target import Target

_MODEL = "smollm2-135m"
_NUM_REQUESTS = 4  # of each suite, after one that warms up
_NEW_TOKENS = 64
_PLAIN = "none"
# Our methods, each with its settings; nothing else needs to know them.
OURS = (
    _PLAIN,
    "prompt-lookup:num_tokens=5",
    "backoff-tree:state_scope=run",
)
_GREEDY, _LOOKUP = "llama.cpp", "llama.cpp prompt lookup"
_PEERS = (_GREEDY, _LOOKUP)
_SPARE = 16  # positions beyond the answer, for the last draft

Job = Callable[[Sequence[int]], tuple[list[int], float]]  # prompt to token ids, decode seconds


@dataclass(slots=True)
class _Runs:
    """What one method did on one suite, request by request, warm-up left out."""

    token_ids: list[list[int]] = field(default_factory=list)
    decode_s: list[float] = field(default_factory=list)

    def times(self) -> RequestTimes:
        """Tokens after the first over decode seconds."""
        return RequestTimes([max(1, len(ids) - 1) for ids in self.token_ids], self.decode_s)


def run() -> None:
    """Measure and store tokens per second of both sides and how many outputs agree."""
    if importlib.util.find_spec("llama_cpp") is None:
        print("  llama-cpp-python is not installed (pip install -e .[llama]): nothing measured")
        return
    import llama_cpp

    load = os.getloadavg()[0]
    settings = Settings()
    torch.set_num_threads(settings.threads)
    model = resolve_model(f"pypi:{_MODEL}", settings.cache_dir, print)
    target = load_target(model, dtype="bfloat16", device="cpu")
    prompts = {name: load_prompts(name, target, 1 + _NUM_REQUESTS) for name in SPEC_BENCH}
    longest = max(len(ids) for suite in prompts.values() for ids in suite.ids)
    with tempfile.TemporaryDirectory(prefix="specdec-gguf-") as folder:
        gguf = Path(folder) / "bfloat16.gguf"
        [packaged] = find_parts(_MODEL, PACKAGED[_MODEL])
        write_bfloat16(packaged, model.folder / "model.safetensors", gguf)
        peers = _load_peers(gguf, longest + _NEW_TOKENS + _SPARE, settings.threads, target.eos_ids)
    suites = {}
    for name, suite in prompts.items():
        print(f"  {name} ({suite.source})", flush=True)
        suites[name] = _measure_suite(target, peers, suite)
    write(
        "llama_cpp",
        {
            "model": model.reference,
            "llama_cpp_python": llama_cpp.__version__,
            "llama_cpp_compiled_with": llama_cpp.llama_print_system_info().decode().strip(),
            "llama_cpp_settings": "bfloat16 weights, float32 norms, else its defaults "
            "(float16 keys and values)",
            "threads": settings.threads,
            "load_average_at_start": load,
            "new_tokens": _NEW_TOKENS,
            "requests_per_suite": _NUM_REQUESTS,
            "mean_over_spec_bench": _means(list(suites.values())),
            "suites": {name: _cell(runs) for name, runs in suites.items()},
        },
    )


def _load_peers(gguf: Path, context: int, threads: int, eos_ids: Collection[int]) -> dict[str, Job]:
    """Return both decodes of llama.cpp, the weights read into memory."""
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    options: dict[str, Any] = {
        "n_ctx": context,
        "n_threads": threads,
        "n_threads_batch": threads,
        "use_mmap": False,
        "verbose": False,
    }
    greedy = Llama(str(gguf), **options)
    # Its verification reads every position's logits. Ten tokens are its default.
    lookup = Llama(str(gguf), logits_all=True, draft_model=LlamaPromptLookupDecoding(), **options)
    return {_GREEDY: _peer_job(greedy, eos_ids), _LOOKUP: _peer_job(lookup, eos_ids)}


def _peer_job(llama: Any, eos_ids: Collection[int]) -> Job:
    def decode(prompt: Sequence[int]) -> tuple[list[int], float]:
        llama.reset()  # else a prompt's start would be taken over from the request before
        token_ids: list[int] = []
        started = time.perf_counter()
        for token in llama.generate(list(prompt), temp=0.0):
            if not token_ids:
                started = time.perf_counter()  # the prompt is done
            token_ids.append(int(token))
            if len(token_ids) == _NEW_TOKENS or token in eos_ids:
                break
        return token_ids, time.perf_counter() - started

    return decode


def _our_job(target: Target, drafter: Drafter) -> Job:
    view = target.view()

    def decode(prompt: Sequence[int]) -> tuple[list[int], float]:
        [done] = generate(
            view, [prompt], [drafter], max_new_tokens=_NEW_TOKENS, eos_ids=target.eos_ids
        )
        return list(done.token_ids), done.phases.decode

    return decode


def _measure_suite(target: Target, peers: Mapping[str, Job], prompts: Prompts) -> dict[str, _Runs]:
    """Decode every prompt with every method; the first prompt warms up."""
    context = DrafterContext(target, target.eos_ids)
    jobs: dict[str, Job] = {
        text: _our_job(target, make_drafter(parse_drafter(text), context)) for text in OURS
    }
    jobs.update(peers)
    runs = {name: _Runs() for name in jobs}
    for index, prompt in enumerate(prompts.ids):
        for name in order_of(list(jobs), index):
            token_ids, decode_s = jobs[name](prompt)
            if index:
                runs[name].token_ids.append(token_ids)
                runs[name].decode_s.append(max(decode_s, 1e-9))
    return runs


def _cell(runs: Mapping[str, _Runs]) -> dict[str, Any]:
    """Figures of every method on one suite."""
    return {
        name: {
            "tokens_per_s": _rate(mine.times()),
            "agreement": _agreement([(mine, runs[_PLAIN])]),
            **{
                f"speedup_over_{_label(peer)}": asdict(
                    speedup_interval(mine.times(), runs[peer].times())
                )
                for peer in _PEERS
                if name in OURS
            },
            "requests": {"tokens": [len(i) for i in mine.token_ids], "decode_s": mine.decode_s},
        }
        for name, mine in runs.items()
    }


def _means(suites: Sequence[Mapping[str, _Runs]]) -> dict[str, Any]:
    """Means over suites of the speedups, each suite weighing the same; agreement over all."""
    means: dict[str, Any] = {}
    for name in (*OURS, *_PEERS):
        rates = [_rate(runs[name].times()) for runs in suites]
        means[name] = {
            "tokens_per_s": sum(rates) / len(rates),
            "agreement": _agreement([(runs[name], runs[_PLAIN]) for runs in suites]),
        }
        for peer in _PEERS if name in OURS else ():
            pairs = [(runs[name].times(), runs[peer].times()) for runs in suites]
            means[name][f"speedup_over_{_label(peer)}"] = asdict(mean_domain_speedup(pairs))
    return means


def _agreement(pairs: Sequence[tuple[_Runs, _Runs]]) -> dict[str, Any]:
    """How many outputs are our plain loop's, token for token, and where the others leave it.

    The kernels round differently, so near ties may fall either way and the answers part there.
    """
    outputs = [
        both for mine, plain in pairs for both in zip(mine.token_ids, plain.token_ids, strict=True)
    ]
    differing = [(mine, plain) for mine, plain in outputs if mine != plain]
    return {
        "num_requests": len(outputs),
        "share_identical": 1 - len(differing) / len(outputs),
        "first_differing_token": [_first_difference(*both) for both in differing],
    }


def _first_difference(mine: Sequence[int], plain: Sequence[int]) -> int:
    pairs = enumerate(zip(mine, plain, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(mine), len(plain)))


def _rate(times: RequestTimes) -> float:
    return sum(times.tokens) / sum(times.seconds)


def _label(peer: str) -> str:
    return peer.replace(".", "_").replace(" ", "_")
