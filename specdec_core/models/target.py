"""The target model: weights loaded once, which every sparse view of it shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from specdec_core.config.evaluation import Prefill
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.errors import ConfigError
from specdec_core.models.architecture import Architecture
from specdec_core.models.graphs import Capture
from specdec_core.models.layers import MLP, Attention, final_norm
from specdec_core.models.linear import Linear, Storage
from specdec_core.models.native.build import Kernels
from specdec_core.models.native.engine import Engine, can_run
from specdec_core.models.native.weights import Packer
from specdec_core.models.prompt_states import PromptStates
from specdec_core.models.rotary import RotaryTable
from specdec_core.models.view import TargetView
from specdec_core.models.weights import TensorSource
from specdec_core.records import ModelKind
from specdec_core.skip import SkipConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Target:
    """One loaded model: embedding, both halves of every block, final norm and head.

    Holds no state of any generation; caches belong to whoever decodes. With 8-bit weights it is
    another target: those of all linear maps and of the head are rounded, the embedding is not.
    With a narrowed vocabulary it reads every token and has logits for some: column v of its logits
    is token ``vocabulary.target_ids[v]``. That is for drafting; nothing is verified with it.
    """

    def __init__(
        self,
        arch: Architecture,
        config: Any,
        tensors: TensorSource,
        *,
        dtype: torch.dtype,
        device: torch.device,
        identity: str,
        has_int8_weights: bool = False,
        kind: ModelKind = "base",
        tokenizer: PreTrainedTokenizerBase | None = None,
        kernels: Kernels | None = None,
        capture: Capture | None = None,
        vocabulary: DraftVocabulary | None = None,
    ) -> None:
        self.arch, self.identity, self.kind = arch, identity, kind
        self.dtype, self.device = dtype, device
        self._tokenizer = tokenizer
        shape = (arch.vocab_size, arch.hidden_size)
        self.embedding = tensors.get("model.embed_tokens.weight", shape)
        # A stored head counts even where the configuration calls it tied, as in the library.
        is_tied = arch.is_tied and "lm_head.weight" not in tensors
        head = self.embedding if is_tied else tensors.get("lm_head.weight", shape)
        self.vocabulary = vocabulary
        if vocabulary is not None:
            head = head[vocabulary.to(device).target_ids]
        packer = Packer(kernels) if kernels and can_run(arch, dtype, device) else None
        storage = Storage(packer, has_int8_weights)
        self.head = Linear(head, storage=storage)
        self.attention = [Attention(arch, i, tensors, storage) for i in range(arch.num_layers)]
        self.mlp = [MLP(arch, i, tensors, storage) for i in range(arch.num_layers)]
        self.final_norm = final_norm(arch, tensors)
        self.rotary = RotaryTable(arch, config, dtype, device)
        self.capture = capture
        self.engine: Engine | None = None
        if packer is not None:
            self.engine = Engine(arch, packer.kernels, self.rotary, self.final_norm, self.head)
        # Rounded to the model's dtype, as the checkpoint was trained with.
        self.embed_scale = torch.tensor(arch.embed_scale).to(dtype).item()

    @property
    def num_layers(self) -> int:
        """Number of transformer blocks."""
        return self.arch.num_layers

    @property
    def eos_ids(self) -> frozenset[int]:
        """Stop token ids of configuration, generation configuration and tokenizer."""
        own = getattr(self._tokenizer, "eos_token_id", None)
        return self.arch.eos_ids | ({own} if own is not None else set())

    @property
    def has_tokenizer(self) -> bool:
        """Whether it was loaded with a tokenizer."""
        return self._tokenizer is not None

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Tokenizer of the checkpoint.

        Raises:
            ConfigError: if the target was built without one.
        """
        if self._tokenizer is None:
            raise ConfigError("this target has no tokenizer: load it from a checkpoint folder")
        return self._tokenizer

    def view(
        self,
        skip: SkipConfig | None = None,
        *,
        prefill: Prefill = "sparse",
        states: PromptStates | None = None,
    ) -> TargetView:
        """Return the target without the units of `skip`, sharing every weight.

        Args:
            skip: What is left out; None for nothing.
            prefill: Whether prompts are read without it, too, or by the whole target.
            states: What earlier prompts of this target became, where views are to share it.

        Raises:
            ConfigError: if a unit does not exist in this target.
        """
        return TargetView(self, skip or SkipConfig(), prefill=prefill, states=states)
