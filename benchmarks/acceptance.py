"""Accepted tokens per step of our drafters beside what each method's released code drafts.

Both sides run in the one decode loop, greedy, on the same prompts of the six Spec-Bench suites:
ours with the paper's or the release's sizes, the release as restated in `benchmarks.released`.
Steps of all requests of all suites are pooled, and a step counts its accepted tokens and one more,
as Spec-Bench counts. What a drafter keeps between requests it keeps within a suite. Where a
release counts otherwise, its own count is given too. No timings.

Every measured cell is kept in the cache folder under ``acceptance``, by what it came from: the
drafter's source and all that it drafts with, prompts, sizes and corpus. So the benchmark can be
stopped and goes on where it was.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.common import write
from benchmarks.released.comparisons import (
    COMPARISONS,
    MODEL,
    NUM_REQUESTS,
    Comparison,
    OwnCount,
    Setting,
    digest,
)
from benchmarks.suites import SPEC_BENCH
from specdec_core.bench.statistics import RequestTimes, speedup_interval
from specdec_core.config.drafters import NoDrafter
from specdec_core.config.settings import Settings
from specdec_core.decoding import Generation, make_drafter
from specdec_core.decoding.drafter import Drafter
from specdec_core.decoding.loop import generate
from specdec_core.decoding.replay import replay
from specdec_core.records import StepTrace

_NEW_TOKENS = 64
# Packages whose code decides what is drafted.
_DRAFTING = (
    "benchmarks.released.",
    "specdec_core.config.",
    "specdec_core.decoding.",
    "specdec_core.randomness",
    "specdec_core.retrieval.",
    "specdec_core.tree.",
)


@dataclass(frozen=True, slots=True)
class Counts:
    """Steps of one request and their accepted tokens, and the release's own entries and sum."""

    steps: int
    accepted: int
    drafted: int
    own_steps: int
    own_tokens: int


def run() -> None:
    """Measure every cell that is not there yet, and store the pooled figures."""
    setting = Setting(Settings())
    cells: dict[str, dict[str, list[Counts]]] = {}
    for suite in SPEC_BENCH:
        outputs = _outputs(setting, suite)
        for name, comparison in COMPARISONS.items():
            sides: dict[str, Callable[[Setting], Drafter]] = {"release": comparison.release}
            sides |= {text: _maker(text) for text in comparison.ours}
            for side, make in sides.items():
                counts = _cell(setting, (name, side), make, suite, outputs, comparison.own_count)
                cells.setdefault(f"{name} {side}", {})[suite] = counts
    manifest = setting.manifest
    figures = {
        "model": MODEL,
        "suites": list(SPEC_BENCH),
        "requests_per_suite": NUM_REQUESTS,
        "new_tokens": _NEW_TOKENS,
        "datastore": {"num_tokens": manifest.num_tokens, "tokens_hash": manifest.tokens_hash},
        "prompt_sources": {suite: setting.prompts[suite].source for suite in SPEC_BENCH},
        "prompts": {suite: list(setting.prompts[suite].item_ids) for suite in SPEC_BENCH},
        "methods": {name: _figures(name, one, cells) for name, one in COMPARISONS.items()},
    }
    write("acceptance", figures, "auto")


def table(figures: Mapping[str, Any]) -> list[str]:
    """Return the rows of the documented table, one per setting of ours.

    Args:
        figures: As they are stored.
    """
    return [
        _row(name, text, ours, method["release"])
        for name, method in figures["methods"].items()
        for text, ours in method["ours"].items()
    ]


def _row(name: str, text: str, ours: Mapping[str, Any], release: Mapping[str, Any]) -> str:
    over = ours["over_release"]
    cells = (
        name,
        f"`{text}`",
        f"{ours['mean_accepted_tokens']:.2f}",
        f"{release['mean_accepted_tokens']:.2f}",
        f"{over['estimate']:.3f} ({over['low']:.3f} to {over['high']:.3f})",
        f"{release['as_it_counts']:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def _maker(text: str) -> Callable[[Setting], Drafter]:
    return lambda setting: setting.ours(text)


def _outputs(setting: Setting, suite: str) -> list[list[int]]:
    """Return the plain greedy outputs of a suite, decoded once."""

    def measure() -> list[list[int]]:
        drafters = [make_drafter(NoDrafter()) for _ in setting.prompts[suite].ids]
        return [list(done.token_ids) for done in _decode(setting, suite, drafters)]

    outputs: list[list[int]] = _kept(setting, "plain", suite, (), measure)
    return outputs


def _cell(
    setting: Setting,
    name: tuple[str, str],
    make: Callable[[Setting], Drafter],
    suite: str,
    outputs: Sequence[Sequence[int]],
    own_count: OwnCount,
) -> list[Counts]:
    """Return the counts of every request of one side on one suite."""
    drafter = make(setting)

    def measure() -> list[dict[str, int]]:
        print(f"  {' '.join(name)} {suite}", flush=True)
        if not drafter.needs.is_replayable:
            done = _decode(setting, suite, [drafter] * len(outputs))
            return [asdict(_counts(each.trace, own_count)) for each in done]
        prompts = setting.prompts[suite].ids
        pairs = zip(prompts, outputs, strict=True)
        return [asdict(_replayed(setting, drafter, *pair, own_count)) for pair in pairs]

    sources = (own_count, setting.manifest.tokens_hash, *_sources(drafter))
    kept = _kept(setting, " ".join(name), suite, sources, measure)
    return [Counts(**each) for each in kept]


def _sources(drafter: Drafter) -> list[str]:
    """Return the text of a drafter's module and of all that it drafts with, at any distance."""
    found: dict[str, str] = {}
    names = [type(drafter).__module__]
    while names:
        name = names.pop()
        if name.startswith(_DRAFTING) and name not in found:
            module = sys.modules[name]
            found[name] = inspect.getsource(module)
            names += [getattr(value, "__module__", None) or "" for value in vars(module).values()]
    return [found[name] for name in sorted(found)]


def _decode(setting: Setting, suite: str, drafters: Sequence[Drafter]) -> list[Generation]:
    """Decode the prompts of a suite one after the other."""
    found = []
    for index, (ids, drafter) in enumerate(zip(setting.prompts[suite].ids, drafters, strict=True)):
        found += generate(
            setting.view,
            [ids],
            [drafter],
            max_new_tokens=_NEW_TOKENS,
            eos_ids=setting.target.eos_ids,
            seeds=[index],
            prefix=setting.prefix(ids),
        )
    return found


def _replayed(
    setting: Setting,
    drafter: Drafter,
    prompt: Sequence[int],
    output: Sequence[int],
    own_count: OwnCount,
) -> Counts:
    """Return the counts on a known output; a draft in the prompt's forward is replayed as well."""
    size = setting.view.vocab_size
    trace = replay(drafter, prompt, output, (), max_new_tokens=_NEW_TOKENS, vocab_size=size)
    if own_count != "prompt's forward drafts":
        return _counts(trace, own_count)
    # The prompt's last token as if it were the first one written: its step is the prompt's.
    early = replay(
        drafter,
        prompt[:-1],
        (prompt[-1], *output),
        (),
        max_new_tokens=_NEW_TOKENS + 1,
        vocab_size=size,
    )
    own = _counts(early, "same")
    return Counts(
        **{
            **asdict(_counts(trace, "same")),
            "own_steps": own.steps,
            "own_tokens": own.accepted + own.steps,
        }
    )


def _counts(trace: StepTrace, own_count: OwnCount) -> Counts:
    steps, accepted = len(trace.accepted), sum(trace.accepted)
    extra = int(own_count == "prompt is a step")
    return Counts(steps, accepted, sum(trace.drafted), steps + extra, accepted + steps + extra)


def _kept(
    setting: Setting, name: str, suite: str, sources: Sequence[str], measure: Callable[[], Any]
) -> Any:
    """Return what was measured before with the same sources, prompts and sizes, or measure it."""
    asked = (setting.model.identity, *map(str, setting.prompts[suite].ids), str(_NEW_TOKENS))
    path = setting.folder / f"{digest(name, suite, *asked, *sources)}.json"
    if not path.exists():
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(measure()))
        temporary.replace(path)
    return json.loads(path.read_text())


def _figures(
    name: str, comparison: Comparison, cells: Mapping[str, Mapping[str, Sequence[Counts]]]
) -> dict[str, Any]:
    release = cells[f"{name} release"]
    every = [each for suite in release.values() for each in suite]
    own = sum(each.own_tokens for each in every) / sum(each.own_steps for each in every)
    return {
        "release": {**_pooled(release), "own_count": comparison.own_count, "as_it_counts": own},
        "ours": {
            text: {
                **_pooled(cells[f"{name} {text}"]),
                "over_release": _ratio(cells[f"{name} {text}"], release),
            }
            for text in comparison.ours
        },
    }


def _pooled(cells: Mapping[str, Sequence[Counts]]) -> dict[str, Any]:
    every = [each for suite in cells.values() for each in suite]
    steps = sum(each.steps for each in every)
    return {
        "mean_accepted_tokens": _mean(every),
        "by_suite": {suite: _mean(own) for suite, own in cells.items()},
        "num_steps": steps,
        "candidates_per_step": sum(each.drafted for each in every) / steps,
    }


def _mean(counts: Sequence[Counts]) -> float:
    steps = sum(each.steps for each in counts)
    return sum(each.accepted + each.steps for each in counts) / steps


def _ratio(
    ours: Mapping[str, Sequence[Counts]], release: Mapping[str, Sequence[Counts]]
) -> dict[str, Any]:
    """Return the ratio of both means with its interval over requests, drawn in pairs."""
    pairs = [
        (mine, other)
        for suite in SPEC_BENCH
        for mine, other in zip(ours[suite], release[suite], strict=True)
        if mine.steps and other.steps
    ]
    sides = zip(*pairs, strict=True)
    mine, other = (
        RequestTimes([each.accepted + each.steps for each in side], [each.steps for each in side])
        for side in sides
    )
    return asdict(speedup_interval(mine, other))
