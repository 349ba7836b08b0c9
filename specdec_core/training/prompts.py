"""Prompts of training data: read from files, hub or training pool, drawn evenly, each once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from specdec_core.config.base import Record
from specdec_core.data.reading import character_fault, near_matches, read_jsonl
from specdec_core.data.records import DOMAIN_ALIASES
from specdec_core.data.suites import builtin_files, data_folders, hub_rows
from specdec_core.errors import DataError
from specdec_core.hashing import json_hash
from specdec_core.randomness import derive_seed, shuffling_generator

POOL = "train_pool"
# Its terms forbid what a draft may be wanted for.
_LEFT_OUT = {"chat_noncommercial"}
_TRAIN = "train_"
_OTHER_THAN_TEXT = re.compile(r"[\W_]+")


class Message(Record):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class Prompt(Record):
    """What the target is asked, or a conversation that is finished already."""

    id: str
    domain: str = Field(description="whose template words it, such as chat")
    source: str = Field(description="name of its file or data set")
    messages: tuple[Message, ...] = Field(min_length=1)
    later_turns: tuple[str, ...] = Field((), description="user turns to ask after the answer")

    @property
    def is_finished(self) -> bool:
        """Whether it brings its answers."""
        return self.messages[-1].role == "assistant"

    @property
    def is_plain(self) -> bool:
        """Whether it begins with one user turn, which its domain's template words."""
        return len(self.messages) == 1 and self.messages[0].role == "user"

    @property
    def letters(self) -> str:
        """Letters and digits of its first user turn: what makes it the same as another."""
        return letters_of(next(m.content for m in self.messages if m.role == "user"))

    @property
    def all_letters(self) -> str:
        """Letters and digits of everything that is asked."""
        return letters_of("".join([*(m.content for m in self.messages), *self.later_turns]))


class PromptRecord(BaseModel):
    """One line of a prompt file: a suite's line, or a conversation in `messages`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: str = Field(min_length=1)
    domain: str = Field("chat", min_length=1)
    prompt: str | None = None
    turns: list[str] | None = Field(None, min_length=1)
    messages: list[dict[str, Any]] | None = Field(None, min_length=1)
    reference: str | list[str] | None = Field(None, description="not read: the target answers")
    metric: str | None = Field(None, description="not read")
    meta: dict[str, Any] = Field(default_factory=dict, description="not read")

    @model_validator(mode="after")
    def _one_question(self) -> PromptRecord:
        if sum(each is not None for each in (self.prompt, self.turns, self.messages)) != 1:
            raise ValueError("needs exactly one of 'prompt', 'turns' and 'messages'")
        return self

    def to_prompt(self, source: str) -> Prompt:
        """Return the prompt that the line describes.

        Raises:
            ValueError: if a turn is empty or no text, or a conversation has no user turn or an odd
                order.
        """
        later: tuple[str, ...] = ()
        if self.messages is not None:
            messages = tuple(map(Message.model_validate, self.messages))
            _check_order(messages)
        else:
            first, *rest = self.turns if self.turns is not None else [self.prompt or ""]
            messages, later = (Message(role="user", content=first),), tuple(rest)
        texts = (*(message.content for message in messages), *later)
        if not all(text.strip() for text in texts):
            raise ValueError("has an empty turn")
        if fault := character_fault(texts):
            raise ValueError(fault)
        own = self.domain.removeprefix(_TRAIN)
        domain = DOMAIN_ALIASES.get(own, own)
        return Prompt(
            id=self.id, domain=domain, source=source, messages=messages, later_turns=later
        )


@dataclass(frozen=True, slots=True)
class Drawn:
    """Prompts that were drawn, and how many were left out on the way, by reason."""

    prompts: tuple[Prompt, ...]
    dropped: dict[str, int]

    @property
    def content_hash(self) -> str:
        """Hex SHA-256 over what is asked, in order; where it was found takes no part."""
        rows = [prompt.model_dump(exclude={"source"}) for prompt in self.prompts]
        return json_hash(rows)


def letters_of(text: str) -> str:
    """Return the letters and digits of a text, in lower case."""
    return _OTHER_THAN_TEXT.sub("", text.lower())


def draw_prompts(
    sources: Sequence[str],
    num_prompts: int,
    *,
    max_turns: int,
    seed: int,
    data_dir: Path | None,
    why_not: Callable[[Prompt], str | None] = lambda _prompt: None,
) -> Drawn:
    """Draw prompts from every source in turn, none twice and none of an evaluation suite.

    The order within a source depends on the seed and on its prompts, not on where it lies or how
    its lines are sorted. Two prompts are the same if their letters and digits are, case ignored;
    of an evaluation suite only what is asked first counts.

    Args:
        sources: JSONL files, names of pool files, ``hf:`` data sets; none for the whole pool.
        num_prompts: Prompts wanted; fewer are returned where there are no more.
        max_turns: User turns kept of a conversation that is to be answered.
        seed: Of the order.
        data_dir: Folder of data from the settings.
        why_not: Says why a prompt cannot be used, in a word, or None; asked of each drawn one.

    Raises:
        DataError: if a source cannot be read, an id repeats, or nothing is left.
    """
    found = [_read_source(source, data_dir) for source in sources or _pool_names(data_dir)]
    files = {path for _, path in found if path is not None}
    asked = evaluation_letters(data_dir, files)
    queues = [_shuffled(prompts, seed) for prompts, _ in found]
    _check_ids(prompt.id for queue in queues for prompt in queue)
    seen: set[str] = set()
    kept: list[Prompt] = []
    dropped: Counter[str] = Counter()
    for prompt in _in_turn(queues):
        short = prompt.model_copy(update={"later_turns": prompt.later_turns[: max_turns - 1]})
        reason = "evaluation" if short.letters in asked else None
        reason = reason or ("repeated" if short.all_letters in seen else None) or why_not(short)
        seen.add(short.all_letters)
        if reason:
            dropped[reason] += 1
        else:
            kept.append(short)
        if len(kept) == num_prompts:
            break
    if not kept:
        raise DataError(
            f"no prompt is left ({dict(dropped) or 'the files are empty'}): give others; those of "
            "evaluation suites and those that are too long are not used"
        )
    return Drawn(tuple(kept), dict(sorted(dropped.items())))


def shared_with(
    texts: Iterable[str], sources: Sequence[str], data_dir: Path | None
) -> tuple[str, ...]:
    """Return those of `texts` that `draw_prompts` might draw from the sources.

    Suites that it finds are left out of what it draws; a file that is a source is no suite to it.

    Raises:
        DataError: if a source cannot be read.
    """
    found = [_read_source(source, data_dir) for source in sources or _pool_names(data_dir)]
    left_out = evaluation_letters(data_dir, {path for _, path in found if path is not None})
    drawn = {prompt.letters for prompts, _ in found for prompt in prompts} - left_out - {""}
    return tuple(text for text in texts if letters_of(text) in drawn)


def evaluation_letters(data_dir: Path | None, without: Iterable[Path] = ()) -> frozenset[str]:
    """Return letters and digits of what every evaluation suite that is found asks first.

    Args:
        data_dir: Folder of data from the settings; the packaged suites count in any case.
        without: Files that are no suites.
    """
    left_out = {path.resolve() for path in without}
    files = list(builtin_files())
    for folder in data_folders(data_dir):
        files += [path for path in sorted(folder.rglob("*.jsonl")) if POOL not in path.parts]
    found = set()
    for path in files:
        if path.resolve() in left_out:
            continue
        for _, row in read_jsonl(path):
            if isinstance(row, dict) and (row.get("prompt") or row.get("turns")):
                first = row.get("prompt") or row["turns"][0]
                found.add(letters_of(str(first)))
    return frozenset(found)


def _read_source(source: str, data_dir: Path | None) -> tuple[list[Prompt], Path | None]:
    if source.startswith("hf:"):
        rows = hub_rows(source, "train")
        placed = ((f"{source} row {i}", _hub_line(i, row)) for i, row in enumerate(rows))
        return _prompts(placed, source.removeprefix("hf:")), None
    path = Path(source).expanduser()
    if path.suffix != ".jsonl":
        path = _pool_file(source, data_dir)
    elif not path.is_file():
        raise DataError(f"prompt file {source!r} does not exist: give a JSONL file")
    return _prompts(read_jsonl(path), path.stem), path


def _hub_line(number: int, row: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of a row's columns; those of other data sets have many more."""
    known = {name: row[name] for name in PromptRecord.model_fields if name in row}
    return {**known, "id": str(row.get("id", number))}


def _prompts(rows: Iterable[tuple[str, object]], source: str) -> list[Prompt]:
    prompts = []
    for where, row in rows:
        try:
            prompts.append(PromptRecord.model_validate(row).to_prompt(source))
        except ValidationError as error:
            faults = "; ".join(f"{_place(e['loc'])}{e['msg']}" for e in error.errors())
            raise DataError(f"{where}: {faults}") from error
        except ValueError as error:
            raise DataError(f"{where}: {error}") from error
    return prompts


def _place(location: tuple[int | str, ...]) -> str:
    return f"{'.'.join(map(str, location))}: " if location else ""


def _check_order(messages: Sequence[Message]) -> None:
    roles = [message.role for message in messages]
    turns = roles[1:] if roles[0] == "system" else roles
    expected = ["user", "assistant"] * (len(turns) // 2 + 1)
    if not turns or turns != expected[: len(turns)]:
        raise ValueError(
            f"messages have the roles {', '.join(roles)}: after at most one system turn, user and "
            "assistant take turns"
        )


def _pool_folder(data_dir: Path | None) -> Path:
    for folder in data_folders(data_dir):
        if (folder / POOL).is_dir():
            return folder / POOL
    raise DataError(
        f"no training pool (folder {POOL!r} with JSONL files) is found: name JSONL files with "
        "prompts, or set SPECDEC_DATA to a folder that has one"
    )


def _pool_names(data_dir: Path | None) -> list[str]:
    names = sorted(path.stem for path in _pool_folder(data_dir).glob("*.jsonl"))
    return [name for name in names if name not in _LEFT_OUT]


def _pool_file(name: str, data_dir: Path | None) -> Path:
    folder = _pool_folder(data_dir)
    path = folder / f"{name}.jsonl"
    if not path.is_file():
        known = sorted(each.stem for each in folder.glob("*.jsonl"))
        raise DataError(
            f"training pool {folder} has no {name!r}{near_matches(name, known)}: it has "
            f"{', '.join(known)}; files of your own end in .jsonl"
        )
    return path


def _shuffled(prompts: Sequence[Prompt], seed: int) -> list[Prompt]:
    ordered = sorted(prompts, key=lambda prompt: prompt.id)
    names = Drawn(tuple(ordered), {}).content_hash
    shuffling_generator(derive_seed(seed, "prompts", names)).shuffle(ordered)
    return ordered


def _check_ids(ids: Iterable[str]) -> None:
    repeated = [each for each, num in Counter(ids).items() if num > 1]
    if repeated:
        raise DataError(
            f"{len(repeated)} prompt ids occur twice ({repeated[0]!r}, ..): ids must be unique "
            "over all files"
        )


def _in_turn(queues: Sequence[Sequence[Prompt]]) -> Iterator[Prompt]:
    """Yield the first of every queue, then the second of every queue, and so on."""
    for place in range(max(map(len, queues), default=0)):
        yield from (queue[place] for queue in queues if place < len(queue))
