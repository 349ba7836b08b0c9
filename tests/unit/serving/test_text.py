"""Text as tokens come: whole characters, nothing taken back, stop strings across tokens."""

from __future__ import annotations

import random

import pytest

from specdec_core.serving.text import OutputText


def of_bytes(parts: list[bytes]):
    """A tokenizer whose token i writes the bytes `parts[i]`."""
    return lambda ids: b"".join(parts[i] for i in ids).decode(errors="replace")


def test_a_character_is_held_back_until_its_last_byte() -> None:
    euro = "€".encode()
    text = OutputText(of_bytes([euro[:1], euro[1:2], euro[2:], b"5"]))
    assert [text.commit([token]) for token in (3, 0, 1, 2, 3)] == ["5", "", "", "€", "5"]
    assert text.finish() == ""
    assert text.text == "5€5"


def test_bytes_that_are_no_character_come_out_in_the_end() -> None:
    text = OutputText(of_bytes([b"a", b"\xe2"]))
    assert [text.commit([0]), text.commit([1]), text.finish()] == ["a", "", "�"]


def test_endless_wrong_bytes_are_not_held_back_for_ever() -> None:
    text = OutputText(of_bytes([b"\xe2"]))
    assert "".join(text.commit([0]) for _ in range(9)) == "�" * 9


def test_stop_string_across_token_borders_is_never_shown() -> None:
    text = OutputText(of_bytes([b"one E", b"N", b"D two"]), stop_strings=["END"])
    shown = []
    output: list[int] = []
    for token in (0, 1, 2):
        kept = text.stop_check([*output, token])
        output.append(token)
        shown.append(text.commit([token]))
    assert kept == 3
    assert [*shown, text.finish()] == ["one ", "", "", ""]
    assert text.text == "one "


def test_what_only_looked_like_a_stop_string_is_shown_at_once() -> None:
    text = OutputText(of_bytes([b"one E", b"NTER"]), stop_strings=["END"])
    assert text.stop_check([0, 1]) is None
    assert text.commit([0, 1]) == "one ENTER"


def test_first_of_two_stop_strings_in_one_token_counts() -> None:
    text = OutputText(of_bytes([b"a;b\nc"]), stop_strings=["\n", ";"])
    assert text.stop_check([0]) == 1
    assert (text.commit([0]), text.text) == ("a", "a")


def test_tokens_behind_the_stop_are_not_asked_for() -> None:
    text = OutputText(of_bytes([b"x", b"\n"]), stop_strings=["\n"])
    assert text.stop_check([0, 1, 0, 0]) == 2


@pytest.mark.parametrize(("skips", "expected"), [(True, "\n yes"), (False, "")])
def test_opening_space_may_be_no_stop(skips: bool, expected: str) -> None:
    text = OutputText(
        of_bytes([b"\n", b" yes", b"\n"]), stop_strings=["\n"], skips_opening_space=skips
    )
    for size in (1, 2, 3):
        if text.stop_check([0, 1, 2][:size]) is not None:
            break
    text.commit([0, 1, 2][:size])
    assert text.text == expected


def test_stop_token_writes_nothing() -> None:
    text = OutputText(of_bytes([b"a", b"</s>"]), eos_ids={1})
    assert text.commit([0, 1]) + text.finish() == "a"


@pytest.mark.parametrize("seed", range(50))
def test_streamed_text_is_the_whole_text_cut_at_the_first_stop(seed: int) -> None:
    """Against decoding the whole output at once and searching it, whatever the step sizes."""
    rng = random.Random(seed)
    whole = "".join(rng.choices("ab€🙂\n", k=40)).encode()
    cuts = sorted(rng.sample(range(1, len(whole)), 15))
    parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    stops = rng.sample(["ab", "€a", "b\n", "🙂🙂", "zz"], 2)
    text = OutputText(of_bytes(parts), stop_strings=stops)
    shown, done = "", 0
    while done < len(parts):
        step = min(rng.randint(1, 5), len(parts) - done)
        keep = text.stop_check(range(done + step))
        end = done + step if keep is None else keep
        shown += text.commit(range(done, end))
        done = end
        if keep is not None:
            break
    shown += text.finish()
    reference = whole.decode()
    found = [reference.find(stop) for stop in stops if stop in reference]
    assert shown == text.text == reference[: min(found, default=len(reference))]
