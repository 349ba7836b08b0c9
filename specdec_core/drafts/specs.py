"""What a learned drafter is made of, and what its checkpoint says of it; free of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from specdec_core.config.base import Record
from specdec_core.errors import ConfigError
from specdec_core.hashing import json_hash

if TYPE_CHECKING:
    from specdec_core.models.architecture import Architecture

HEAD_INPUT_TAP = -1
"""The hidden state in front of the target's head, as `specdec_core.models.taps` numbers it."""


class BlockShape(Record):
    """Sizes and kinds of the parts of a drafter's decoder layer; see `Architecture`."""

    hidden_size: int = Field(ge=1)
    intermediate_size: int = Field(ge=1)
    num_heads: int = Field(ge=1)
    num_kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=2)
    norm_eps: float = Field(gt=0.0)
    norm_offset: float = Field(0.0, description="added to stored norm weights")
    activation: Literal["silu", "gelu_tanh"] = "silu"
    attention_scale: float = Field(gt=0.0)
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    has_mlp_bias: bool = False
    has_qk_norm: bool = False
    has_sandwich_norms: bool = False
    rope: str | None = Field(None, description="which of the target's rotary frequencies it uses")

    @classmethod
    def like_target(cls, arch: Architecture) -> BlockShape:
        """Return the shape of a layer of the target, with full attention."""
        names = set(cls.model_fields) - {"rope"}
        values = {name: getattr(arch, name) for name in names}
        return cls(**values, rope=_full_attention_rope(arch))

    @classmethod
    def plain(cls, arch: Architecture) -> BlockShape:
        """Return the shape of a Llama layer of the target's sizes, whatever its family."""
        return cls(
            hidden_size=arch.hidden_size,
            intermediate_size=arch.intermediate_size,
            num_heads=arch.num_heads,
            num_kv_heads=arch.num_kv_heads,
            head_dim=arch.head_dim,
            norm_eps=arch.norm_eps,
            attention_scale=arch.head_dim**-0.5,
            rope=_full_attention_rope(arch),
        )


class EagleSpec(Record):
    """A one-block head on the target's hidden states.

    Source: EAGLE, section 4.1 (version 1: one feature, the target's head); EAGLE-3, section 3
    (version 3: several features, a head of its own).
    """

    kind: Literal["eagle"] = "eagle"
    version: Literal[1, 3] = 1
    taps: tuple[int, ...] = Field(min_length=1, description="hidden states of the target it reads")
    block: BlockShape
    draft_vocab_size: int | None = Field(
        None, ge=1, description="rows of its own head where its vocabulary is narrowed"
    )

    @classmethod
    def of_target(
        cls, arch: Architecture, version: Literal[1, 3], draft_vocab_size: int | None = None
    ) -> EagleSpec:
        """Return the spec of a head for a target.

        Version 1 is a layer of the target's family and reads the head's input. Version 3 is a
        Llama layer, as in the released heads, and reads three states; see `default_taps`.

        Raises:
            ConfigError: if the vocabulary of version 1, which uses the target's head, is narrowed.
        """
        if version == 1:
            if draft_vocab_size is not None:
                raise ConfigError(
                    f"{draft_vocab_size} ids were given for EAGLE-1, which drafts with the "
                    "target's own head: leave the vocabulary out or use version 3"
                )
            return cls(version=1, taps=(HEAD_INPUT_TAP,), block=BlockShape.like_target(arch))
        return cls(
            version=3,
            taps=default_taps(arch.num_layers),
            block=BlockShape.plain(arch),
            draft_vocab_size=draft_vocab_size,
        )

    @property
    def hidden_size(self) -> int:
        """Width of the target's hidden states, h."""
        return self.block.hidden_size


class MedusaSpec(Record):
    """Heads that predict further tokens from the head's input (Medusa, section 2.1)."""

    kind: Literal["medusa"] = "medusa"
    hidden_size: int = Field(ge=1)
    num_heads: int = Field(ge=1, le=16)
    num_blocks: int = Field(1, ge=1, le=8, description="residual blocks per head")
    draft_vocab_size: int | None = Field(
        None, ge=1, description="rows of its heads where their vocabulary is narrowed"
    )

    @property
    def taps(self) -> tuple[int, ...]:
        """Hidden states of the target it reads."""
        return (HEAD_INPUT_TAP,)


DraftSpec = Annotated[EagleSpec | MedusaSpec, Field(discriminator="kind")]


class DraftTarget(Record):
    """The target a drafter was trained for."""

    reference: str = Field("", description="model reference it was found by")
    identity: str = Field(description="content hash of configuration, weights, tokenizer")
    hidden_size: int = Field(ge=1)
    vocab_size: int = Field(ge=1)

    @classmethod
    def of(cls, identity: str, arch: Architecture, reference: str = "") -> DraftTarget:
        """Return what a drafter's manifest says of such a target."""
        return cls(
            reference=reference,
            identity=identity,
            hidden_size=arch.hidden_size,
            vocab_size=arch.vocab_size,
        )


class Provenance(Record):
    """Where the weights of a learned drafter come from."""

    template_hash: str = Field("", description="of the prompt template of the training texts")
    domains: tuple[str, ...] = Field((), description="domains whose templates that hash is of")
    data_hash: str = Field("", description="content hash of the training data")
    training: dict[str, Any] = Field(default_factory=dict, description="anything else, free-form")


class DraftManifest(Record):
    """What the checkpoint of a learned drafter says of itself."""

    format_version: Literal[1] = 1
    draft: DraftSpec
    target: DraftTarget
    provenance: Provenance = Field(default_factory=Provenance)
    weights_hash: str = Field(description="SHA-256 of the weight file")

    @property
    def identity(self) -> str:
        """Hex SHA-256 over what decides proposals: structure, target and weights."""
        content = {
            "draft": self.draft.model_dump(mode="json"),
            "target": self.target.identity,
            "weights": self.weights_hash,
        }
        return json_hash(content)


def default_taps(num_layers: int) -> tuple[int, int, int]:
    """Return where version 3 reads a target of so many blocks: low, middle, high.

    These are the streams that enter blocks 2, L // 2 and L - 3, as in the released code; nearer
    to the middle where the target has fewer than six blocks.

    Source: EAGLE-3, section 3.1, for three depths.
    """
    middle = num_layers // 2
    return min(2, max(middle - 1, 0)), middle, max(num_layers - 3, min(middle + 1, num_layers))


def _full_attention_rope(arch: Architecture) -> str | None:
    shapes = [shape for shape in arch.layers if shape.window is None] or arch.layers[-1:]
    return shapes[0].rope
