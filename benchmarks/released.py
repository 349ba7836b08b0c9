"""What released code does differently from its method, stated anew for comparison.

Only decisions that change acceptance are here; see ``docs/methods.md`` for the whole list.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.records import StepTrace


class ReleasedPromptLookup:
    """Prompt lookup as the Spec-Bench release decides it.

    The earliest match counts, it must have a whole continuation of `num_tokens` inside the
    sequence, and may not touch the n-gram at the end.

    Source: Spec-Bench, prompt lookup baseline.
    """

    def __init__(self, max_ngram: int = 3, num_tokens: int = 10) -> None:
        self._max_ngram, self._num_tokens = max_ngram, num_tokens

    def continuation(self, sequence: Sequence[int]) -> list[int]:
        """Return the drafted chain, empty if nothing matches."""
        tokens, length = list(sequence), len(sequence)
        for size in range(self._max_ngram, 0, -1):
            ngram = tokens[length - size :]
            for start in range(length - size):
                after = start + size
                is_match = tokens[start:after] == ngram
                if is_match and after < length - size and after + self._num_tokens <= length:
                    return tokens[after : after + self._num_tokens]
        return []


def released_prompt_lookup_steps(
    prompt: Sequence[int], output: Sequence[int], lookup: ReleasedPromptLookup
) -> list[int]:
    """Return committed tokens per step of the release on a known greedy output."""
    done, steps = 1, []
    while done < len(output):
        draft = lookup.continuation([*prompt, *output[:done]])
        rest = output[done:]
        pairs = zip(draft, rest, strict=False)
        accepted = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(draft), len(rest)))
        steps.append(min(accepted + 1, len(rest)))
        done += steps[-1]
    return steps


def lost_bonus_length(trace: StepTrace, guess_length: int) -> float:
    """Return mean committed tokens per step where a fully matched guess loses its bonus token.

    The token lost is written by one more step, which is counted.

    Source: Lookahead Decoding and Self-Draft, released loops.
    """
    num_lost = sum(accepted == guess_length for accepted in trace.accepted)
    num_steps = len(trace.committed)
    return sum(trace.committed) / (num_steps + num_lost)
