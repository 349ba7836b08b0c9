"""Logits of a few rows, by slices of the vocabulary, and their probabilities.

With one slice, logits and probabilities are kept while the rows are in use. With several, nothing
as wide as a row is kept: normalisers are found in one sweep over the slices (online logsumexp),
and every later use multiplies hidden states and head again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specdec_core.training.draft import Head
from specdec_core.training.losses.common import LOWEST_LOGIT


@dataclass(frozen=True, slots=True)
class Chunks:
    """How much of the logits exists at once; the loss does not depend on it.

    Attributes:
        rows: Positions worked on together, at least 1, at every draft depth.
        vocab: Columns worked on together, at least 1; None for the whole vocabulary.
    """

    rows: int = 128
    vocab: int | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a head that are compared.

    Attributes:
        weight: ``[V, h]``; rows in the order of the columns unless `ids` picks them.
        bias: ``[V]`` or None.
        ids: ``[V_c]`` rows of the head that are compared; None for the first `size`.
        size: Columns compared, V_c.
        slices: They cover the columns in order.
        dtype: Of products, logits and probabilities: float32 or float64. Logits rounded to bfloat16
            make gradients of nearly perfect drafts noise.
    """

    weight: Tensor
    bias: Tensor | None
    ids: Tensor | None
    size: int
    slices: Sequence[slice]
    dtype: torch.dtype

    @classmethod
    def of(
        cls, head: Head, ids: Tensor | None, size: int, chunks: Chunks, dtype: torch.dtype
    ) -> Columns:
        """Return columns of a head; with one slice, all conversions are made here once."""
        step = min(chunks.vocab or size, size)
        slices = [slice(at, min(at + step, size)) for at in range(0, size, step)]
        weight, bias = head.weight.detach(), head.bias
        bias = bias.detach().to(dtype) if bias is not None else None
        if len(slices) == 1:
            rows = slice(0, size) if ids is None else ids
            weight = weight[rows].to(dtype)
            bias = bias[rows] if bias is not None else None
            ids = None
        return cls(weight, bias, ids, size, slices, dtype)

    def weights(self, part: slice) -> Tensor:
        """Return the head's rows of a slice, ``[v, h]``."""
        rows = self.weight[part] if self.ids is None else self.weight[self.ids[part]]
        return rows.to(self.dtype)

    def logits(self, hidden: Tensor, part: slice) -> Tensor:
        """Return logits ``[n, v]`` of hidden states ``[n, h]``."""
        found = hidden.to(self.dtype) @ self.weights(part).T
        if self.bias is None:
            return found
        bias = self.bias[part] if self.ids is None else self.bias[self.ids[part]]
        return found.add_(bias).clamp_(min=LOWEST_LOGIT)


class RowLogits:
    """Logits of some rows under one head.

    Args:
        hidden: ``[n, h]``.
        columns: Of the head.
        temperatures: All that normalisers will be asked for.
    """

    def __init__(self, hidden: Tensor, columns: Columns, temperatures: Iterable[float]) -> None:
        self.hidden = hidden
        self.columns = columns
        self._temperatures = tuple(temperatures)
        self._kept: dict[tuple[str, float], Tensor] = {}
        self._normalisers: dict[float, Tensor] = {}
        self._likeliest: Tensor | None = None

    def select(self, chosen: Tensor) -> RowLogits:
        """Return the rows of a mask ``[n]``; these themselves if it leaves none out."""
        if bool(chosen.all()):
            return self
        return RowLogits(self.hidden[chosen], self.columns, self._temperatures)

    def raw(self, part: slice) -> Tensor:
        """Return logits ``[n, v]`` of a slice; not to be changed."""
        return self._keep("raw", 0.0, lambda: self.columns.logits(self.hidden, part))

    def log_probs(self, part: slice, temperature: float) -> Tensor:
        """Return log-probabilities ``[n, v]`` of a slice; not to be changed."""
        return self._keep("log", temperature, lambda: self._log_probs(part, temperature))

    def probs(self, part: slice, temperature: float) -> Tensor:
        """Return probabilities ``[n, v]`` of a slice; not to be changed."""
        return self._keep("plain", temperature, lambda: self._probs(part, temperature))

    def likeliest(self) -> Tensor:
        """Return the column of each row's largest logit, ``[n]``; the first of equal ones."""
        if self._likeliest is None:
            if self._is_whole:
                self._likeliest = self.raw(self.columns.slices[0]).argmax(-1)
            else:
                self._sweep()
        assert self._likeliest is not None, "the sweep found it"
        return self._likeliest

    def normaliser(self, temperature: float) -> Tensor:
        """Return log of the sum of exponentials of each row, ``[n]``."""
        if temperature not in self._normalisers:
            if self._is_whole:
                part = self.columns.slices[0]
                scaled, found = (
                    _scaled(self.raw(part), temperature),
                    self.log_probs(part, temperature),
                )
                # At the largest logit nothing cancels; logsumexp of torch is much slower here.
                self._normalisers[temperature] = scaled.amax(-1) - found.amax(-1)
            else:
                self._sweep()
        return self._normalisers[temperature]

    @property
    def _is_whole(self) -> bool:
        return len(self.columns.slices) == 1

    def _keep(self, name: str, temperature: float, make: Callable[[], Tensor]) -> Tensor:
        if not self._is_whole:
            return make()
        if (name, temperature) not in self._kept:
            self._kept[name, temperature] = make()
        return self._kept[name, temperature]

    def _log_probs(self, part: slice, temperature: float) -> Tensor:
        scaled = _scaled(self.raw(part), temperature)
        if self._is_whole:
            return functional.log_softmax(scaled, -1)
        return scaled - self.normaliser(temperature)[:, None]

    def _probs(self, part: slice, temperature: float) -> Tensor:
        if self._is_whole and ("log", temperature) not in self._kept:
            return functional.softmax(_scaled(self.raw(part), temperature), -1)
        return self.log_probs(part, temperature).exp()

    def _sweep(self) -> None:
        """Find largest logits and normalisers slice by slice."""
        num_rows, dtype = self.hidden.shape[0], self.columns.dtype
        best = self.hidden.new_full((num_rows,), -torch.inf, dtype=dtype)
        at = torch.zeros_like(best, dtype=torch.int64)
        sums = {temperature: torch.zeros_like(best) for temperature in self._temperatures}
        for part in self.columns.slices:
            raw = self.raw(part)
            top, where = raw.max(-1)
            at = torch.where(top > best, where + part.start, at)
            new = torch.maximum(best, top)
            for temperature, total in sums.items():
                total.mul_(((best - new) / temperature).exp())
                total.add_(((raw - new[:, None]) / temperature).exp_().sum(-1))
            best = new
        self._likeliest = at
        self._normalisers = {t: best / t + total.log() for t, total in sums.items()}


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    return logits if temperature == 1.0 else logits / temperature
