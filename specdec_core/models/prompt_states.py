"""What prompts became inside a target, so that skip sets that begin alike compute it once.

Two views compute the same below the first layer in which what they leave out differs. A search
reads the same prompts with hundreds of skip sets: each needs only the layers from there on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from torch import Tensor

from specdec_core.models.cache import KVCache
from specdec_core.models.layers import Plan
from specdec_core.records import PromptWork

Tokens = tuple[int, ...]
PassKey = tuple[tuple[Tokens, ...], tuple[Tokens, ...]]
"""One prefill pass: the passes before it that all its sequences share, and its own tokens."""

Path = tuple[tuple[bool, bool], ...]
"""What a view runs of every layer: attention, MLP."""

_RECENT = 32  # evaluations; one skip set may be evaluated in many parts
_MOST_PATHS = 64


@dataclass(slots=True)
class LayerState:
    """What one layer of a view made of the tokens of a pass.

    Attributes:
        output: Residual stream behind it, ``[B, N, hidden]``; never changed.
        rows: Keys and values it wrote, ``[2, B, H_kv, N, d]``; None without attention.
        num_bytes: Memory that it holds beyond what the layer before it holds.
        num_paths: Paths that hold it.
    """

    output: Tensor
    rows: Tensor | None
    num_bytes: int
    num_paths: int = 1


@dataclass(slots=True)
class _Held:
    """One pass: what paths made of it, in the order of their last use, and when it was read."""

    paths: dict[Path, list[LayerState]] = field(default_factory=dict)
    stamps: dict[Path, int] = field(default_factory=dict)
    round: int = 0


class PromptStates:
    """Bounded memory of prefill passes of one target; use it with the views of that target alone.

    Of every pass it holds, layer by layer, what the skip sets made of it that were last of use;
    layers that several of them share it holds once. A pass of a new set begins with the layers
    of the one that begins most alike.

    Where room is short, passes go that no recent evaluation read, then sets that are not the last
    one of their pass, longest unused first. Of a pass that does not fit even then the leading
    layers are held. Sets asked in lexicographic order share the most with the last one, so that
    little room is enough. Results never depend on what is held: a layer's output is taken over
    only where the same kernels would run on the same tensors.

    Args:
        budget_bytes: Most memory held, on the target's device.

    Source: TSS names no such reuse; sharing what lies below the first difference is ours.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._passes: dict[PassKey, _Held] = {}
        self._clock = count()
        self._used = 0
        self._round = 0
        self._computed = self._reused = 0

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self._used

    @property
    def work(self) -> PromptWork:
        """What the evaluation in progress computed and what it took over."""
        return PromptWork(computed=self._computed, reused=self._reused)

    def begin(self) -> None:
        """Begin an evaluation."""
        self._round += 1
        self._computed = self._reused = 0

    def clear(self) -> None:
        """Free everything."""
        self._passes.clear()
        self._used = 0

    def open(self, key: PassKey, plan: Plan, cache: KVCache) -> PassStates:
        """Return what is known of a pass for a view that runs `plan`, ready to take the rest.

        Args:
            key: The pass; its sequences have no rows but those of the passes named in it.
            plan: All layers of the view.
            cache: The view's cache of these sequences.
        """
        path = tuple((attention is not None, mlp is not None) for attention, _, mlp in plan)
        held = self._passes.setdefault(key, _Held())
        held.round = self._round
        known = self._take_known(held, path)
        num_tokens = sum(map(len, key[1]))
        run = [any(halves) for halves in path]
        self._reused += num_tokens * sum(run[: len(known)])
        self._computed += num_tokens * sum(run[len(known) :])
        return PassStates(self, known, cache)

    def _take_known(self, held: _Held, path: Path) -> list[LayerState]:
        """Return the layers of the path that begins most alike, as the newest path's own."""
        best: Path | None = None
        num_best = 0
        for other, states in held.paths.items():  # of equals the last used
            num = min(_num_alike(path, other), len(states))
            if num and num >= num_best:
                best, num_best = other, num
        known: list[LayerState] = []
        if best is not None:
            known = held.paths[best][:num_best]
            held.stamps[best] = next(self._clock)
            held.paths[best] = held.paths.pop(best)
        for state in known:
            state.num_paths += 1
        if path in held.paths:
            self._drop(held, path)
        held.paths[path] = known
        held.stamps[path] = next(self._clock)
        while len(held.paths) > _MOST_PATHS:
            self._drop(held, next(iter(held.paths)))
        return known

    def make_room(self, num_bytes: int) -> bool:
        """Claim memory for a layer of a pass in progress; return whether there is enough."""
        if self._used + num_bytes > self._budget:
            self._drop_unread()
        while self._used + num_bytes > self._budget:
            several = [held for held in self._passes.values() if len(held.paths) > 1]
            if not several:
                return False
            oldest = min(several, key=lambda held: held.stamps[next(iter(held.paths))])
            self._drop(oldest, next(iter(oldest.paths)))
        self._used += num_bytes
        return True

    def _drop_unread(self) -> None:
        """Free the passes that no recent evaluation read."""
        limit = self._round - _RECENT
        for key in [key for key, held in self._passes.items() if held.round <= limit]:
            held = self._passes.pop(key)
            for path in list(held.paths):
                self._drop(held, path)

    def _drop(self, held: _Held, path: Path) -> None:
        del held.stamps[path]
        for state in held.paths.pop(path):
            state.num_paths -= 1
            if not state.num_paths:
                self._used -= state.num_bytes


class PassStates:
    """One pass of one view: the layers known already, and then those it computes, in order.

    Attributes:
        num_known: Leading layers that need not be run.
    """

    def __init__(self, store: PromptStates, states: list[LayerState], cache: KVCache) -> None:
        self.num_known = len(states)
        self._store, self._states, self._cache = store, states, cache
        self._is_full = False

    def take_over(self, layer: int, slot: int) -> Tensor:
        """Write keys and values of a known layer to its slot and return its output.

        The rows of the pass must be reserved.
        """
        known = self._states[layer]
        if known.rows is not None:
            self._cache.written(slot).copy_(known.rows)
        return known.output

    def keep(self, output: Tensor, slot: int | None) -> None:
        """Hold the next layer if there is room for it; the first that does not fit is the last.

        Args:
            output: Residual stream behind it, ``[B, N, hidden]``, never changed again.
            slot: The slot that it wrote its keys and values to; None without attention.
        """
        if self._is_full:
            return
        rows = None if slot is None else self._cache.written(slot)
        is_new = not self._states or self._states[-1].output is not output
        size = (_size(output) if is_new else 0) + (0 if rows is None else _size(rows))
        if not self._store.make_room(size):
            self._is_full = True
            return
        self._states.append(LayerState(output, None if rows is None else rows.clone(), size))


def _num_alike(path: Path, other: Path) -> int:
    """Return how many leading layers two paths run alike."""
    pairs = zip(path, other, strict=True)
    return next((layer for layer, (one, two) in enumerate(pairs) if one != two), len(path))


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
