"""An EAGLE head read by the names of serving engines alone, and run slowly: no cache, no tree.

Written from the published layouts; shares no code with the drafter that it is compared with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import linear, silu, softmax


@dataclass(frozen=True)
class ServedEagle:
    """A head on disk beside the library's own target."""

    folder: Path
    target: Any
    layer: str
    fusion: str

    @property
    def config(self) -> dict[str, Any]:
        document = json.loads((self.folder / "config.json").read_text())
        return document.get("transformer_layer_config", document)

    @property
    def is_third(self) -> bool:
        return f"{self.layer}.hidden_norm.weight" in self.tensors

    @property
    def tensors(self) -> dict[str, Tensor]:
        return load_file(self.folder / "model.safetensors")

    def chain(self, tokens: Sequence[int], taps: Sequence[int], num: int) -> list[int]:
        """Return the likeliest `num` tokens behind `tokens`, whose last one the target has not run.

        Args:
            tokens: Prompt and output.
            taps: Hidden states of the library's target; -1 is its head's input.
            num: Tokens to draft.
        """
        with torch.no_grad():
            states = self.target(
                torch.tensor([tokens[:-1]]), output_hidden_states=True
            ).hidden_states
        features = torch.cat([states[tap][0] for tap in taps], -1)
        if self.is_third:
            features = linear(features, self.tensors["fc.weight"])
        drafted: list[int] = []
        for _ in range(num):
            outputs = self._layer_outputs(features, [*tokens, *drafted])
            logits = self._logits(outputs[-1])
            token = int(logits.argmax())
            drafted.append(token + int(self.tensors["d2t"][token]) if self._is_narrow else token)
            features = torch.cat((features, outputs[-1:]))
        return drafted

    @property
    def _is_narrow(self) -> bool:
        return "d2t" in self.tensors

    def _layer_outputs(self, states: Tensor, tokens: Sequence[int]) -> Tensor:
        embedded = self.target.get_input_embeddings().weight[torch.tensor(tokens[1:])]
        if self.is_third:
            residual = states
            pair = (
                self._norm(embedded, f"{self.layer}.input_layernorm"),
                self._norm(states, f"{self.layer}.hidden_norm"),
            )
            x = torch.cat(pair, -1)
        else:
            x = residual = self._map(torch.cat((embedded, states), -1), self.fusion)
        hidden = residual + self._map(self._attention(x), f"{self.layer}.self_attn.o_proj")
        normed = self._norm(hidden, f"{self.layer}.post_attention_layernorm")
        gate = silu(self._map(normed, f"{self.layer}.mlp.gate_proj"))
        up = self._map(normed, f"{self.layer}.mlp.up_proj")
        return hidden + self._map(gate * up, f"{self.layer}.mlp.down_proj")

    def _attention(self, x: Tensor) -> Tensor:
        config, num = self.config, len(x)
        size, heads = config["head_dim"], config["num_attention_heads"]
        query, key, value = (
            self._map(x, f"{self.layer}.self_attn.{name}_proj").view(num, -1, size).transpose(0, 1)
            for name in "qkv"
        )
        query, key = self._rotated(query), self._rotated(key)
        groups = heads // config["num_key_value_heads"]
        key, value = key.repeat_interleave(groups, 0), value.repeat_interleave(groups, 0)
        scores = query @ key.transpose(1, 2) / size**0.5
        future = torch.ones(num, num, dtype=torch.bool).triu(1)
        mixed = softmax(scores.masked_fill(future, -torch.inf), -1) @ value
        return mixed.transpose(0, 1).reshape(num, -1)

    def _rotated(self, x: Tensor) -> Tensor:
        size = x.shape[-1]
        turns = self.config["rope_theta"] ** (-torch.arange(0, size, 2, dtype=x.dtype) / size)
        angles = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * turns
        cos, sin = angles.cos(), angles.sin()
        low, high = x[..., : size // 2], x[..., size // 2 :]
        return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)

    def _logits(self, output: Tensor) -> Tensor:
        if self.is_third:
            return linear(self._norm(output, "norm"), self.tensors["lm_head.weight"])
        return linear(output, self.target.get_output_embeddings().weight)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        scale = (x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"]).rsqrt()
        return x * scale * self.tensors[f"{name}.weight"]

    def _map(self, x: Tensor, name: str) -> Tensor:
        return linear(x, self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias"))
