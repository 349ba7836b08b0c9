"""Options of the methods that draft with a window of columns inside the target's forward."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from specdec_core.config.base import DrafterOptions
from specdec_core.config.retrieval import FolderText


class Lookahead(DrafterOptions):
    """N-grams drafted by a Jacobi window inside the target's forward (Lookahead Decoding).

    The defaults are the paper's for 7B models; for 13B and 34B it sets 10 and 7 in place of 15.
    Spec-Bench runs ``window=7,guesses=7``.
    """

    method: Literal["lookahead"] = "lookahead"
    drafts_trees: ClassVar[bool] = True
    window: int = Field(15, ge=2, le=64, description="columns W drafted side by side")
    ngram: int = Field(
        5, ge=2, le=16, description="length N of an n-gram: one known token and N-1 guessed ones"
    )
    guesses: int = Field(15, ge=1, le=64, description="n-grams G kept and verified per token")
    pool_from_prompt: bool = Field(
        False, description="whether the n-grams of prompt and output are guesses too"
    )
    state_scope: Literal["prompt"] = Field("prompt", description="what is remembered")

    @property
    def max_path(self) -> int:
        """Guessed tokens of an n-gram."""
        return self.ngram - 1


class SelfDraft(DrafterOptions):
    """N-grams of draft branches behind random snippets, of the context and of a corpus."""

    method: Literal["self-draft"] = "self-draft"
    places: ClassVar[frozenset[str]] = frozenset({"datastore"})
    drafts_trees: ClassVar[bool] = True
    branch_num: int = Field(6, ge=2, le=64, description="branches drafted side by side")
    branch_len: int = Field(
        6, ge=3, le=16, description="tokens of a branch: last of its snippet, levels, newest one"
    )
    context_ngram: int = Field(
        4, ge=1, le=15, description="tokens of a draft from the context; at most branch_len - 1"
    )
    prefix_len: int = Field(2, ge=1, le=16, description="longest snippet before a branch, tokens")
    datastore: FolderText = Field(
        "",
        description="folder of a datastore, the corpus, whose frequent 4-grams are drafts too; "
        "'' for none",
    )
    min_count: int = Field(
        2,
        ge=1,
        le=1_000_000,
        description="occurrences in the datastore that make a 4-gram frequent; the release, with a "
        "corpus of 15 million words, asks for more than 5",
    )
    state_scope: Literal["prompt", "run"] = Field(
        "prompt",
        description="what the context pool remembers; 'run' is the warm start of the release",
    )

    @model_validator(mode="after")
    def _check_use(self) -> SelfDraft:
        if self.context_ngram >= self.branch_len:
            raise ValueError(
                f"context_ngram {self.context_ngram} does not fit on branches of branch_len "
                f"{self.branch_len}: it must be smaller"
            )
        default = type(self).model_fields["min_count"].default
        if self.min_count != default and not self.datastore:
            raise ValueError("min_count has no effect without a datastore: leave it out")
        return self
