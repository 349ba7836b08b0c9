"""What training data is made of: prompts, and how the frozen target answers them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from specdec_core.config.base import FiniteRecord, Seed
from specdec_core.config.dtype import DTYPE_HELP

HiddenDType = Literal["bfloat16", "float16", "float32"]


def _split(value: Any) -> Any:
    """Return the parts of text such as ``0/7/15``; anything else as it is."""
    if isinstance(value, str):
        return tuple(part for part in value.replace(",", "/").split("/") if part)
    return value


Layers = Annotated[tuple[int, ...], BeforeValidator(_split)]


class DataConfig(FiniteRecord):
    """Prompts and how the frozen target answers them.

    Source: EAL (arXiv 2609.24150), data: responses of the frozen target, greedy, prompt and
    response together 2048 tokens.
    """

    target: str = Field("pypi:smollm2-135m", description="model reference")
    dtype: str = Field("auto", description=DTYPE_HELP)
    prompts: tuple[str, ...] = Field(
        (),
        description="JSONL files, names of files in the training pool such as chat, or hub data "
        "sets as hf:org/name[@revision][:split]; default the whole pool but what is "
        "non-commercial",
    )
    num_prompts: int = Field(1600, ge=2, description="prompts, drawn evenly from the files")
    max_turns: int = Field(
        1, ge=1, le=64, description="user turns answered per conversation, each a sample"
    )
    max_tokens: int = Field(2048, ge=16, description="prompt and response together, tokens")
    max_new_tokens: int = Field(192, ge=1, description="longest response, tokens")
    temperature: float = Field(0.0, ge=0.0, le=100.0, description="0 takes the likeliest token")
    batch_size: int = Field(64, ge=1, le=1024, description="prompts answered together")
    hidden: Literal["none", "head-input", "taps"] = Field(
        "head-input",
        description="hidden states of the target stored beside the tokens: none (computed while "
        "training), the head's input, or that and those of `taps`",
    )
    taps: Layers = Field(
        (), description="further hidden states stored where hidden is taps, such as 2/15/27"
    )
    hidden_dtype: HiddenDType = Field("bfloat16", description="precision they are stored in")
    top_k: int = Field(
        0,
        ge=0,
        le=1024,
        description="target logits stored per response token, a biased view; 0 none",
    )
    seed: Seed = Field(0, description="of the draw of prompts and of sampling")

    @model_validator(mode="after")
    def _response_fits(self) -> DataConfig:
        if self.max_new_tokens >= self.max_tokens:
            raise ValueError(
                f"responses of {self.max_new_tokens} tokens leave no room for a prompt within "
                f"max_tokens {self.max_tokens}: lower max_new_tokens or raise max_tokens"
            )
        if self.taps and self.hidden != "taps":
            raise ValueError(
                f"taps {'/'.join(map(str, self.taps))} are given, but hidden is "
                f"{self.hidden!r}: say hidden=taps to store them"
            )
        if len(set(self.taps)) < len(self.taps):
            raise ValueError(
                f"taps {'/'.join(map(str, self.taps))} store a hidden state twice: name each once"
            )
        return self
