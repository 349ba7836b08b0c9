"""The frozen target as training asks for it: hidden states of whole sequences, and its head."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from specdec_core.config.dtype import has_int8_weights
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from specdec_core.models.architecture import Architecture, read_architecture
from specdec_core.models.loading import load_target, torch_device, torch_dtype
from specdec_core.models.quantization import Int8Weight
from specdec_core.models.reference import ResolvedModel
from specdec_core.models.taps import HEAD_INPUT
from specdec_core.models.target import Target
from specdec_core.models.weights import Checkpoint
from specdec_core.training.draft import Head

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


def load_head(folder: Path, *, dtype: str, device: str) -> Head:
    """Return the head of the checkpoint in `folder`, without loading the rest.

    Its weight ``[V, h]`` is a plain tensor without gradient, in the type that the target computes
    in; of a target with 8-bit weights it is what the 8 bits stand for.

    Args:
        folder: Of a resolved model.
        dtype: One of `DType`.
        device: ``cpu``, ``cuda`` or ``cuda:n``.

    Raises:
        ConfigError: if the checkpoint has no head of the configuration's shape.
    """
    arch = read_architecture(folder)[0]
    place, kind = torch_device(device), torch_dtype(dtype)
    with Checkpoint(folder, dtype=kind, device=place) as tensors:
        # A stored head counts even where the configuration calls it tied, as in the target.
        name = _EMBEDDING if arch.is_tied and _HEAD not in tensors else _HEAD
        weight = tensors.get(name, (arch.vocab_size, arch.hidden_size))
    if has_int8_weights(dtype):
        weight = Int8Weight.of(weight).dequantized(kind)
    return Head(weight.contiguous())


def load_embedding(folder: Path, *, dtype: str, device: str) -> Tensor:
    """Return the embedding ``[V, h]`` of the checkpoint in `folder` as stored.

    A target multiplies it by `Architecture.embed_scale` and never rounds it to 8 bits.

    Raises:
        ConfigError: if the checkpoint lacks it.
    """
    arch = read_architecture(folder)[0]
    place, kind = torch_device(device), torch_dtype(dtype)
    with Checkpoint(folder, dtype=kind, device=place) as tensors:
        return tensors.get(_EMBEDDING, (arch.vocab_size, arch.hidden_size)).contiguous()


class FrozenTarget:
    """A loaded target that is never trained.

    Tensors that it returns are plain ones without gradient: they may enter any graph.

    Attributes:
        head: The head, ``[V, h]``.
    """

    def __init__(self, target: Target, head: Head) -> None:
        self._target, self.head = target, head

    @classmethod
    def load(
        cls, model: ResolvedModel, *, dtype: str, device: str, settings: Settings | None = None
    ) -> FrozenTarget:
        """Load a resolved model, its head a second time as a plain tensor.

        Raises:
            ConfigError: as `load_target`.
        """
        target = load_target(model, dtype=dtype, device=device, settings=settings)
        return cls(target, load_head(model.folder, dtype=dtype, device=device))

    @property
    def target(self) -> Target:
        """The target itself, for decoding."""
        return self._target

    @property
    def arch(self) -> Architecture:
        """Sizes and kinds of its parts."""
        return self._target.arch

    def states(
        self, sequences: Sequence[Sequence[int]], taps: Sequence[int] = ()
    ) -> list[tuple[Tensor, Tensor]]:
        """Run whole sequences, each by itself, and return their hidden states.

        Args:
            sequences: Token ids, at least one each.
            taps: Further hidden states, numbered as `specdec_core.models.taps`.

        Returns:
            Per sequence of n tokens the head's input ``[n, h]`` after each token, and the taps
            side by side ``[n, T * h]``, in the target's type and on its device.

        Raises:
            ConfigError: if the target lacks a tap.
        """
        view = self._target.view()
        view.check_taps(taps)
        found = []
        for sequence in sequences:
            cache = view.new_cache(1, len(sequence))
            _, (rows,) = view.prefill_tapped([sequence], cache, (HEAD_INPUT, *taps))
            # A clone made outside inference mode may be kept by autograd.
            kept = rows.clone()
            found.append((kept[:, 0].contiguous(), kept[:, 1:].flatten(1)))
        return found

    def batch_states(
        self, input_ids: Tensor, lengths: Tensor, taps: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Return the hidden states of a padded batch; zeros where it is padding.

        Args:
            input_ids: ``[B, N]`` int64, padded on the right.
            lengths: ``[B]`` tokens per sequence.
            taps: As `states`.

        Returns:
            The head's input ``[B, N, h]``, and the taps ``[B, N, T * h]``; None for no taps.

        Raises:
            ConfigError: if a sequence is empty or the target lacks a tap.
        """
        sizes = lengths.tolist()
        if min(sizes, default=0) < 1:
            raise ConfigError("a sequence of the batch is empty: leave it out")
        rows = input_ids.tolist()
        found = self.states([row[:size] for row, size in zip(rows, sizes, strict=True)], taps)
        hidden = pad_rows([head for head, _ in found], input_ids.shape[1])
        return hidden, pad_rows([tap for _, tap in found], input_ids.shape[1]) if taps else None


def pad_rows(rows: Sequence[Tensor], width: int) -> Tensor:
    """Return ``[n, ...]`` tensors as one ``[B, width, ...]``, zeros behind their ends."""
    padded = rows[0].new_zeros((len(rows), width, *rows[0].shape[1:]))
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded
