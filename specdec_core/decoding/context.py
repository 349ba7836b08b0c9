"""What a drafter may use beside what the decode loop tells it: target, tokenizer, other models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specdec_core.config.sampling import Sampling
from specdec_core.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from specdec_core.drafts.checkpoint import LearnedDraft
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
        load_draft: Returns a learned drafter for the target, ready for decoding, by its folder
            and whether it may be of another target of the same sizes; see `drafts.loading`.
    """

    target: Target | None = None
    eos_ids: frozenset[int] = frozenset()
    load_model: Callable[[str], Target] | None = None
    sampling: Sampling = field(default_factory=Sampling)
    view: TargetView | None = None
    load_draft: Callable[[str, bool], LearnedDraft] | None = None

    def require_target(self, method: str) -> Target:
        """Return the loaded model whose view verifies.

        Raises:
            ConfigError: if there is none.
        """
        if self.target is None:
            raise ConfigError(
                f"drafter {method!r} drafts on the hidden states of a target and with its head, "
                "but none was given: pass a DrafterContext with one"
            )
        return self.target

    def require_draft(self, method: str, folder: str, allows_other: bool) -> LearnedDraft:
        """Return the learned drafter in `folder`, on the target's device and in its type.

        Args:
            method: Of the drafter, for messages.
            folder: Where it is.
            allows_other: Whether it may have been trained for another target of the same sizes.

        Raises:
            ConfigError: if this context cannot load any, the checkpoint cannot be used, or it was
                trained for another target.
        """
        if self.load_draft is None:
            raise ConfigError(
                f"drafter {method!r} drafts with what training left in {folder!r}, but nothing "
                "here loads it: pass a DrafterContext with load_draft"
            )
        return self.load_draft(folder, allows_other)

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
