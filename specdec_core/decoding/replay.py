"""What a drafter would have done on a known output: the trace of a decode, without a model."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.config.sampling import Sampling
from specdec_core.decoding.drafter import Drafter
from specdec_core.decoding.sequence import (
    SequenceState,
    StopRules,
    prefill_outcome,
    step_outcome,
)
from specdec_core.decoding.verify import follow
from specdec_core.errors import ConfigError
from specdec_core.records import StepTrace

_GREEDY = Sampling()


def replay(
    drafter: Drafter,
    prompt: Sequence[int],
    token_ids: Sequence[int],
    top_k_rows: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    vocab_size: int,
    sampling: Sampling = _GREEDY,
    seed: int = 0,
) -> StepTrace:
    """Return the trace that `generate` would have recorded with `drafter` for this output.

    Exact because the output of a greedy or sample-then-match decode is the same for every
    drafter, and a replayable drafter sees nothing but committed tokens and the rankings after
    them. Where the model's arithmetic depends on how many tokens are run together, exact up to
    near ties.

    Args:
        drafter: One whose needs are met by the accepted path.
        prompt: The prompt, at least one token.
        token_ids: The whole output of any drafter or none, with whatever ended it.
        top_k_rows: Per output position the ids ranked there, best first, as `generate` records
            them; may be empty for a drafter that needs none.
        max_new_tokens: The limit the output was decoded under; it bounds the last proposals.
        vocab_size: Number of ids of the target.
        sampling: How the output was decoded.
        seed: Of the request.

    Raises:
        ConfigError: if the drafter or the verification rule cannot be replayed, or the output or
            its rankings do not suffice.
    """
    check_replayable(sampling)
    _check_recording(drafter, token_ids, top_k_rows, max_new_tokens, vocab_size)
    rules = StopRules(max_new_tokens)
    max_positions = len(prompt) + max_new_tokens
    top_k = drafter.needs.top_k
    rows = top_k_rows if top_k else [()] * len(token_ids)
    state = SequenceState.start(drafter, prompt, seed, run_seed=sampling.seed)
    last = state.tokens[-1]
    committed = state.extend(token_ids[:1], rules)
    drafter.observe(prefill_outcome(last, committed, rows[0], top_k=top_k))
    while (start := len(state.output)) < len(token_ids):
        proposal = state.propose(rules, vocab_size, max_positions)
        if proposal.sampled and not sampling.is_greedy and sampling.verification == "auto":
            raise ConfigError(
                f"{type(drafter).__name__} draws its candidates, and verification=auto tests them "
                "by rejection: decode with it instead, or use verification=match"
            )
        rest = token_ids[start:]
        path = follow(proposal.candidates, rest)
        committed = state.extend(rest[: len(path)], rules)
        state.trace.add(proposal, path, len(committed))
        path = path[: len(committed)]
        own = rows[start : start + len(committed)]
        drafter.observe(step_outcome(proposal, path, committed, path, own, top_k=top_k))
    return state.trace.build()


def check_replayable(sampling: Sampling) -> None:
    """Check that outputs do not depend on what was drafted.

    Raises:
        ConfigError: if the verification rule lets them.
    """
    if not sampling.is_coupled:
        raise ConfigError(
            f"outputs under verification={sampling.verification} depend on the drafts and cannot "
            "be replayed: decode instead, or use verification=match"
        )


def _check_recording(
    drafter: Drafter,
    token_ids: Sequence[int],
    top_k_rows: Sequence[Sequence[int]],
    max_new_tokens: int,
    vocab_size: int,
) -> None:
    needs = drafter.needs
    name = type(drafter).__name__
    if not needs.is_replayable:
        raise ConfigError(
            f"{name} learns from more than the committed tokens and cannot be replayed: decode "
            "with it instead"
        )
    if not 1 <= len(token_ids) <= max_new_tokens:
        raise ConfigError(
            f"an output of {len(token_ids)} tokens cannot come from a limit of {max_new_tokens}: "
            "give the whole output and the limit it was decoded under"
        )
    width = min(needs.top_k, vocab_size)
    if width and (len(top_k_rows) != len(token_ids) or min(map(len, top_k_rows)) < width):
        raise ConfigError(
            f"{name} needs {width} ranked ids for each of {len(token_ids)} output positions, but "
            f"{len(top_k_rows)} rows were recorded, or shorter ones: decode with num_top_k={width}"
        )
