"""Text of token ids, and whether two models speak of the same tokens by the same ids."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from specdec_core.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Text whose splitting differs between tokenizers that share a vocabulary: case, digits, spaces,
# line breaks, accents, signs and scripts, and what only byte-level tokens can spell.
PROBE = (
    "The quick brown fox isn't 1234567 metres from naïve Zoë's café -- Ünïcödé!\n\n"
    "\tdef f(x):\r\n        return x**2 + 0.5e-3  # ½ 漢字 العربية 🙂\u00a0\u200b ...  end "
)


def decode_text(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> str:
    """Return the text of token ids, special tokens left out."""
    return str(
        tokenizer.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
    )


def token_ends(
    tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int], text: str
) -> tuple[int, ...]:
    """Return how many characters of `text`, what the ids decode to, each token completes.

    Grows from token to token and ends with the length of `text`. A character that several tokens
    make belongs to the last of them; tokens that write nothing repeat the end before them.
    """
    ends = [0]
    for size in range(1, len(token_ids)):
        part = decode_text(tokenizer, token_ids[:size])
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(part, text)))  # noqa: B905 - the shorter one ends it
        ends.append(max(ends[-1], shared))
    return (*ends[1:], len(text)) if token_ids else ()


def check_same_tokenizer(
    target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase, *, names: tuple[str, str]
) -> None:
    """Check that ids of `draft` mean to it what they mean to `target`.

    Either may know ids that the other lacks, such as added special tokens; what both know must be
    the same, in both directions, and they must split text alike.

    Args:
        target: Tokenizer of the target.
        draft: Tokenizer of the draft model.
        names: References of target and draft, for the message.

    Raises:
        ConfigError: at the first difference.
    """
    advice = "choose a draft model of the target's family, with the same tokenizer"
    ours, theirs = target.get_vocab(), draft.get_vocab()
    for token, index in sorted(ours.items(), key=lambda item: item[1]):
        if theirs.get(token, index) != index:
            raise ConfigError(
                f"{names[1]} has another tokenizer than {names[0]}: token {token!r} is id "
                f"{theirs[token]} there and {index} here: {advice}"
            )
    by_index = {index: token for token, index in theirs.items()}
    for token, index in sorted(ours.items(), key=lambda item: item[1]):
        if by_index.get(index, token) != token:
            raise ConfigError(
                f"{names[1]} has another tokenizer than {names[0]}: id {index} is "
                f"{by_index[index]!r} there and {token!r} here: {advice}"
            )
    if _split(target) != _split(draft):
        raise ConfigError(
            f"{names[1]} splits text otherwise than {names[0]}, with the same vocabulary: {advice}"
        )


def _split(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    ids: list[int] = tokenizer(PROBE, add_special_tokens=False)["input_ids"]
    return ids
