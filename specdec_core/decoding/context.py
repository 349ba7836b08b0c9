"""What a drafter may use beside what the decode loop tells it: target, tokenizer, other models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specdec_core.config.sampling import Sampling
from specdec_core.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from specdec_core.models.target import Target
    from specdec_core.models.view import TargetView


@dataclass(frozen=True, slots=True)
class DrafterContext:
    """Shared by all drafters of one decode; empty for methods that live on tokens alone.

    Attributes:
        target: The loaded model whose view verifies; None where none is loaded.
        eos_ids: Tokens that end an output.
        load_model: Returns another model by its reference, loaded once per process.
        sampling: How the decode chooses tokens, for drafters that draw their candidates alike.
        view: The (sparse) view of the target that verifies; None where none is known.
    """

    target: Target | None = None
    eos_ids: frozenset[int] = frozenset()
    load_model: Callable[[str], Target] | None = None
    sampling: Sampling = field(default_factory=Sampling)
    view: TargetView | None = None

    def require_view(self, method: str) -> TargetView:
        """Return the view that verifies.

        Raises:
            ConfigError: if there is none.
        """
        if self.view is None:
            raise ConfigError(
                f"drafter {method!r} must know the view it drafts for, but none was given: pass a "
                "DrafterContext with one"
            )
        return self.view

    def require_model(self, method: str, reference: str) -> Target:
        """Return the model called `reference`.

        Raises:
            ConfigError: if this context cannot load models.
        """
        if self.load_model is None:
            raise ConfigError(
                f"drafter {method!r} drafts with the model {reference!r}, but nothing here loads "
                "models: pass a DrafterContext with load_model"
            )
        return self.load_model(reference)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        """Tokenizer of the target, None without one."""
        target = self.target
        return target.tokenizer if target is not None and target.has_tokenizer else None
