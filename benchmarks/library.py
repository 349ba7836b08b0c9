"""The library's own `generate` on the same weights: greedy, prompt lookup, assisted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from specdec_core.decoding import Generation
from specdec_core.models.target import Target

Job = Callable[[], tuple[int, float, Generation | None]]


class LibraryModel:
    """Decodes like a user of the library would, with its defaults."""

    def __init__(self, model: Any, assistant: Any, device: torch.device) -> None:
        self._model, self._assistant, self._device = model, assistant, device

    @classmethod
    def load(cls, folder: Path, target: Target) -> LibraryModel:
        """Load the checkpoint, and its lower half as an assistant of the same family."""
        dtype, device = target.dtype, target.device
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
        config = AutoConfig.from_pretrained(folder)
        config.num_hidden_layers //= 2
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[: config.num_hidden_layers]
        half = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=dtype)
        return cls(model, half.to(device).eval(), device)

    def job(self, name: str, prompt: Sequence[int], new_tokens: int) -> Job:
        """Return the decode called `name`: tokens, seconds (prompt included), no trace."""
        options: dict[str, Any] = {
            "library greedy": {},
            "library prompt lookup": {"prompt_lookup_num_tokens": 10},
            "library assistant": {"assistant_model": self._assistant},
        }[name]

        def decode() -> tuple[int, float, Generation | None]:
            ids = torch.tensor([list(prompt)], device=self._device)
            started = time.perf_counter()
            with torch.inference_mode():
                out = self._model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    do_sample=False,
                    max_new_tokens=new_tokens,
                    **options,
                )
            return out.shape[1] - ids.shape[1], time.perf_counter() - started, None

        return decode
