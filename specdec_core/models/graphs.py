"""Forward passes of a fixed shape, captured once and replayed from then on.

On a CUDA device a small model's step is mostly the launching of kernels, one after another, from
Python. A captured pass is launched as a whole. It reads and writes the same memory every time, so
that the nodes are padded to a few widths, the rows looked at to a few totals, and the buffers of
caches that are gone are used again.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specdec_core.models.cache import KVCache
from specdec_core.models.eager import run_plan
from specdec_core.models.layers import PassState, Plan
from specdec_core.models.masks import additive_masks, tree_positions
from specdec_core.models.passes import PassTokens

if TYPE_CHECKING:
    from specdec_core.models.target import Target

Capture = Callable[[Callable[[], None]], Callable[[], None]]
"""Takes work on memory that stays where it is, and returns what does it again; may do it."""

_MAX_NODES = 128
_MIN_ROWS = 256
_MAX_GRAPHS = 64
_MAX_SEEN = 4096
_MAX_FREE = 4
_PLACE = 2  # of the buffer's address in the key of a pass


def cuda_capture(device: torch.device) -> Capture:
    """Return what captures work as a CUDA graph on `device`."""

    def capture(work: Callable[[], None]) -> Callable[[], None]:
        with torch.cuda.device(device):
            # Once outside: libraries allocate their workspaces at the first call.
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call] # torch's own
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                work()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                work()
        return graph.replay

    return capture


class PassGraphs:
    """The captured passes of one view, and the buffers of its caches.

    A shape is captured when it comes the second time: capturing costs about two passes.

    Args:
        target: Whose weights, norms and rotary tables are used.
        plan: The view's halves.
        embed: Scaled embeddings ``[B, N, hidden]`` of token ids ``[B, N]`` on the device.
        capture: Captures one pass.
    """

    def __init__(
        self, target: Target, plan: Plan, embed: Callable[[Tensor], Tensor], capture: Capture
    ) -> None:
        self._target, self._plan, self._embed, self._capture = target, plan, embed, capture
        self._graphs: OrderedDict[tuple[int, ...], _FixedPass] = OrderedDict()
        self._seen: set[tuple[int, ...]] = set()
        self._free: list[Tensor] = []

    def new_cache(self, shape: tuple[int, int, int, int, int, int]) -> KVCache:
        """Return an empty cache with a buffer of at least this shape, a free one if there is one.

        Args:
            shape: ``[2, slots, B, H_kv, capacity, d]``.
        """
        rows = -(-shape[4] // _MIN_ROWS) * _MIN_ROWS
        rounded = (*shape[:4], rows, shape[5])
        for place, buffer in enumerate(self._free):
            if buffer.shape == rounded:
                cache = KVCache(self._free.pop(place).zero_(), [0] * shape[2])
                break
        else:
            cache = KVCache.allocate(rounded, self._target.dtype, self._target.device)
        weakref.finalize(cache, self._take_back, cache.buffer)
        return cache

    def run(
        self,
        passed: PassTokens,
        cache: KVCache,
        pending_depths: Sequence[Sequence[int]] | None = None,
    ) -> Tensor | None:
        """Run a pass by replaying it; its rows become pending.

        Args:
            passed: The nodes.
            cache: The sequences' cache.
            pending_depths: As for `run_blocks`.

        Returns:
            Logits ``[B, N, V]``; None, and nothing done, where the pass cannot be replayed: it is
            too wide, its padding does not fit the cache, or its shape is new.
        """
        nodes = passed.ids.shape[1]
        width = _at_least(nodes, 1)
        first = max(sum(each) for each in zip(cache.lengths, cache.pending, strict=True))
        if nodes > _MAX_NODES or first + width > cache.capacity:
            return None
        total = min(_at_least(first + width, _MIN_ROWS), cache.capacity)
        key = (width, total, cache.buffer.data_ptr(), *cache.buffer.shape, *cache.buffer.stride())
        if key not in self._seen:
            if len(self._seen) == _MAX_SEEN:
                self._seen.clear()
            self._seen.add(key)
            return None
        cache.begin(passed.counts, is_continued=pending_depths is not None)
        fixed = self._graphs.get(key)
        if fixed is None:
            fixed = _FixedPass(self._target, self._plan, self._embed, cache.buffer, width, total)
            self._graphs[key] = fixed
            if len(self._graphs) > _MAX_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        fixed.load(passed, cache, pending_depths)
        return fixed.replay(self._capture)[:, :nodes].clone()

    def _take_back(self, buffer: Tensor) -> None:
        """Keep the buffer of a cache that is gone, and drop the oldest one with its passes."""
        self._free.append(buffer)
        if len(self._free) > _MAX_FREE:
            dropped = self._free.pop(0).data_ptr()
            for key in [key for key in self._graphs if key[_PLACE] == dropped]:
                del self._graphs[key]


class _FixedPass:
    """One pass over memory that stays where it is: its nodes, their masks, and a cache buffer.

    Nodes that pad write rows behind those of the pass, which the next one overwrites before
    anybody sees them.
    """

    def __init__(
        self,
        target: Target,
        plan: Plan,
        embed: Callable[[Tensor], Tensor],
        buffer: Tensor,
        width: int,
        total: int,
    ) -> None:
        self._target, self._plan, self._embed = target, plan, embed
        self._buffer, self._width, self._total = buffer, width, total
        batch, device = buffer.shape[2], buffer.device
        self._ids, self._positions, self._rows = (
            torch.zeros((batch, width), dtype=torch.int64, device=device) for _ in range(3)
        )
        self._batch = torch.arange(batch, device=device)[:, None]
        self._groups = target.arch.num_heads // target.arch.num_kv_heads
        shape = (batch, 1, self._groups * width, total)
        windows = {attention.shape.window for attention, _, _ in plan if attention is not None}
        self._masks: dict[int | None, Tensor | None] = {
            window: torch.zeros(shape, dtype=target.dtype, device=device) for window in windows
        }
        # Held, because a table that grows is another tensor and a captured pass reads this one.
        self._tables = target.rotary.tables(total)
        self._logits: Tensor | None = None
        self._again: Callable[[], None] | None = None

    def load(
        self,
        passed: PassTokens,
        cache: KVCache,
        pending_depths: Sequence[Sequence[int]] | None,
    ) -> None:
        """Put a pass, whose rows `cache` has reserved, where it is read from."""
        batch, nodes = passed.ids.shape
        positions = tree_positions(cache.lengths, passed.depths)
        masks = additive_masks(
            cache.lengths,
            passed.ancestors,
            positions,
            self._total,
            self._masks.keys(),
            num_groups=self._groups,
            dtype=self._target.dtype,
            device=self._buffer.device,
            pending_positions=positions
            if pending_depths is None
            else tree_positions(cache.lengths, pending_depths),
        )
        self._ids[:, :nodes].copy_(torch.from_numpy(passed.ids))
        self._positions[:, :nodes].copy_(torch.from_numpy(positions))
        starts = torch.tensor(cache.starts)[:, None]
        self._rows.copy_(starts + torch.arange(self._width))
        for window, fixed in self._masks.items():
            assert fixed is not None
            grouped = fixed.view(batch, self._groups, self._width, self._total)[:, :, :nodes]
            mask = masks[window]
            if mask is None:
                grouped.zero_()
            else:
                grouped.copy_(mask.view(batch, self._groups, nodes, self._total))

    def replay(self, capture: Capture) -> Tensor:
        """Run the pass that was loaded; return the logits ``[B, width, V]``, good until the next.

        Args:
            capture: Captures the pass if this is the first time.
        """
        if self._again is None:
            self._again = capture(self._run)
        self._again()
        assert self._logits is not None
        return self._logits

    def write(self, slot: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store the pass's rows and return all rows its queries may look at, as `KVCache` does."""
        stored = self._buffer[:, slot]
        stored[0, self._batch, :, self._rows] = keys
        stored[1, self._batch, :, self._rows] = values
        return stored[0, :, :, : self._total], stored[1, :, :, : self._total]

    def _run(self) -> None:
        target = self._target
        rotary = target.rotary.gather(self._tables, self._positions)
        state = PassState(self, self._masks, rotary)
        hidden = run_plan(target, self._plan, self._embed(self._ids), state)
        self._logits = target.head(target.final_norm(hidden))


def _at_least(number: int, least: int) -> int:
    """Return the smallest power of two that is neither below `number` nor below `least`."""
    return max(least, 1 << (number - 1).bit_length())
