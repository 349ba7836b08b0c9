"""What a decode is asked to do, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.config.sampling import Sampling
from specdec_core.decoding.drafter import Drafter
from specdec_core.decoding.sequence import SequenceState, StopRules
from specdec_core.decoding.target import CacheT, PrefixT, TargetView
from specdec_core.errors import CacheDesyncError, ConfigError


def check_request(
    view: TargetView[CacheT, PrefixT],
    prompts: Sequence[Sequence[int]],
    drafters: Sequence[Drafter],
    rules: StopRules,
) -> None:
    """Check the arguments of `generate`.

    Raises:
        ConfigError: if a prompt, drafter, limit or stop id cannot work with this target.
    """
    if not prompts or len(prompts) != len(drafters):
        raise ConfigError(
            f"{len(prompts)} prompts and {len(drafters)} drafters were given: give at least one "
            "prompt and one drafter for each"
        )
    if len({id(drafter) for drafter in drafters}) != len(drafters):
        raise ConfigError("one drafter object serves two requests: make one for each")
    for drafter in drafters:
        _check_needs(drafter)
    if rules.max_new_tokens < 1:
        raise ConfigError(f"max_new_tokens is {rules.max_new_tokens}: ask for at least 1")
    foreign = [token for token in sorted(rules.eos_ids) if not 0 <= token < view.vocab_size]
    if foreign:
        raise ConfigError(
            f"stop ids {foreign} are outside the vocabulary of {view.vocab_size}: remove them"
        )
    for index, prompt in enumerate(prompts):
        if not prompt:
            raise ConfigError(f"prompt {index} is empty: a prompt needs at least one token")
        if min(prompt) < 0 or max(prompt) >= view.vocab_size:
            raise ConfigError(
                f"prompt {index} has token ids {min(prompt)} to {max(prompt)}, but the target has "
                f"ids 0 to {view.vocab_size - 1}: encode it with the target's own tokenizer"
            )
        if len(prompt) + rules.max_new_tokens > view.max_positions:
            raise ConfigError(
                f"prompt {index} of {len(prompt)} tokens and {rules.max_new_tokens} new ones "
                f"exceed the target's {view.max_positions} positions: shorten one of them"
            )


def _check_needs(drafter: Drafter) -> None:
    needs, name = drafter.needs, type(drafter).__name__
    if needs.max_drafting > 0 and needs.max_nodes < 1:
        raise ConfigError(
            f"drafter {name} sends {needs.max_drafting} drafting nodes along and needs room for "
            f"{needs.max_nodes} candidates: ask for max_nodes of at least 1"
        )
    is_told = needs.max_drafting > 0 or needs.rows != "none"
    if is_told and needs.top_k < 1:
        raise ConfigError(
            f"drafter {name} needs rankings (rows={needs.rows}, {needs.max_drafting} drafting "
            f"nodes) of {needs.top_k} ids: ask for top_k of at least 1"
        )


def check_lengths(lengths: Sequence[int], states: Sequence[SequenceState]) -> None:
    """Check that the cache holds the rows of everything before each last committed token.

    Raises:
        CacheDesyncError: if it does not.
    """
    expected = [len(state.tokens) - 1 for state in states]
    if list(lengths) != expected:
        raise CacheDesyncError(
            f"the cache holds {list(lengths)} rows per sequence, but {expected} tokens before the "
            "last are committed: its commit or keep did not do what it was told"
        )


def check_seeds(sampling: Sampling, seeds: Sequence[int] | None, num_prompts: int) -> None:
    """Check that requests which draw have seeds of their own.

    Raises:
        ConfigError: if there is not one seed per prompt, or none where several prompts sample.
    """
    if seeds is None and not sampling.is_greedy and num_prompts > 1:
        raise ConfigError(
            f"{num_prompts} prompts are sampled without seeds and would share their random "
            "numbers: give one seed per prompt"
        )
    if seeds is not None and len(seeds) != num_prompts:
        raise ConfigError(
            f"{len(seeds)} seeds were given for {num_prompts} prompts: give one per prompt"
        )
