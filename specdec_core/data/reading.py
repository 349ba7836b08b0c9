"""Read and check suite files: every fault is reported with its file, line number and reason."""

from __future__ import annotations

import difflib
import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specdec_core.data.records import DOMAIN_ALIASES, METRICS, SuiteItem
from specdec_core.errors import DataError

_CHOICE = re.compile(r"[A-D]")


class SuiteRecord(BaseModel):
    """One line of a suite file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: str = Field(min_length=1, description="unique in the suite")
    domain: str = Field(min_length=1, description="what results are grouped by")
    prompt: str | None = Field(None, description="the question; exactly one of prompt and turns")
    turns: list[str] | None = Field(
        None, min_length=1, description="user turns of one conversation, in order"
    )
    reference: str | list[str] | None = Field(
        description="one turn: accepted answers; more turns: one text per turn, '' for none"
    )
    metric: str | None = Field(description="name of the metric, null for not scored")
    meta: dict[str, Any] = Field(
        default_factory=dict, description="origin, and what the metric needs"
    )


def near_matches(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'x'?)" for the closest of `known`, or "" if none is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def read_jsonl(path: Path) -> Iterator[tuple[str, object]]:
    """Yield (``file:line``, JSON value) for each line of a UTF-8 file that is not blank.

    A byte order mark, as some editors write, is passed over.

    Raises:
        DataError: if the file cannot be read, or a line is not UTF-8 or not JSON.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"suite file {path} cannot be read: {error.strerror}") from error
    for number, line in enumerate(content.removeprefix(BOM_UTF8).split(b"\n"), start=1):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            yield where, _parse_json(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise DataError(
                f"{where}: not UTF-8 at byte {error.start + 1} of the line: save the file as UTF-8"
            ) from error
        except json.JSONDecodeError as error:
            raise DataError(
                f"{where}: not JSON: {error.msg} at column {error.colno}: each line must be one "
                "JSON object"
            ) from error
        except ValueError as error:
            raise DataError(f"{where}: not JSON: {error}") from error


def read_items(rows: Iterable[tuple[str, object]], domain: str) -> list[SuiteItem]:
    """Check each (place, value) row and return its item.

    Args:
        rows: Where a row comes from, as text for messages, and its JSON value.
        domain: Domain that the rows must have, under its own name or a known alias.

    Raises:
        DataError: if a row breaks the schema, repeats an id, belongs to another domain or lacks
            what its metric needs.
    """
    items: list[SuiteItem] = []
    places: dict[str, str] = {}
    for where, value in rows:
        item = _item(where, _record(where, value), domain)
        if item.id in places:
            raise DataError(
                f"{where}: id {item.id!r} was already used at {places[item.id]}: ids must be unique"
            )
        places[item.id] = where
        items.append(item)
    return items


def character_fault(texts: Iterable[str]) -> str:
    """Return what no tokenizer can read in texts that JSON allows; empty without such a fault."""
    if any("\ud800" <= letter <= "\udfff" for text in texts for letter in text):
        return "has half of a surrogate pair, which is no character: remove it"
    return ""


def _item(where: str, record: SuiteRecord, domain: str) -> SuiteItem:
    turns = record.turns if record.turns is not None else [record.prompt or ""]
    own_domain = DOMAIN_ALIASES.get(record.domain, record.domain)
    if own_domain != domain:
        raise DataError(
            f"{where}: item {record.id!r} is of domain {own_domain!r}, but {domain!r} was asked "
            f"for: ask for {own_domain!r} or give another suite"
        )
    item = SuiteItem(
        id=record.id,
        domain=domain,
        turns=tuple(turns),
        references=_references(record.reference),
        metric=record.metric,
        meta=record.meta,
    )
    reason = _turn_fault(record, item) or _metric_fault(item)
    if reason:
        raise DataError(f"{where}: item {record.id!r} {reason}")
    return item


def _references(reference: str | list[str] | None) -> tuple[str, ...]:
    if reference is None:
        return ()
    return (reference,) if isinstance(reference, str) else tuple(reference)


def _turn_fault(record: SuiteRecord, item: SuiteItem) -> str:
    if (record.prompt is None) == (record.turns is None):
        return "needs exactly one of 'prompt' and 'turns'"
    if not all(text.strip() for text in item.turns):
        return "has an empty prompt: give the text of the question"
    if fault := character_fault(item.turns):
        return fault
    if len(item.turns) > 1 and item.references and len(item.references) != len(item.turns):
        return (
            f"has {len(item.turns)} turns but {len(item.references)} references: give one per "
            "turn, '' for none"
        )
    return ""


def _metric_fault(item: SuiteItem) -> str:
    """Why the item cannot be scored with its metric, or ""."""
    if item.metric is None:
        return ""
    if item.metric not in METRICS:
        return (
            f"has unknown metric {item.metric!r}{near_matches(item.metric, METRICS)}: use one of "
            f"{', '.join(METRICS)} or null"
        )
    if item.metric == "pass@1":
        return _test_fault(item)
    if item.metric == "exact_match":
        if not _is_number(item.meta.get("final_answer")):
            return "has metric 'exact_match' but no number in meta.final_answer: give the answer"
        return ""
    if not any(text.strip() for text in item.alternatives):
        return (
            f"has metric {item.metric!r} but no reference: give 'reference', or set 'metric' to "
            "null to leave the item out of scoring"
        )
    if item.metric == "accuracy" and not all(map(_CHOICE.fullmatch, item.alternatives)):
        return f"has reference {item.alternatives[0]!r}: 'accuracy' needs one letter, A to D"
    return ""


def _test_fault(item: SuiteItem) -> str:
    if "tests" in item.meta:
        texts = [item.meta["tests"], item.meta.get("entry_point")]
    else:
        listed = item.meta.get("test_list")
        texts = [*listed, item.meta.get("test_setup_code", "")] if isinstance(listed, list) else []
    if len(texts) > 1 and all(isinstance(text, str) for text in texts):
        return ""
    return (
        "has metric 'pass@1' but no tests as text: give meta.tests and meta.entry_point, or "
        "meta.test_list"
    )


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    try:
        return Decimal(str(value).replace(",", "")).is_finite()
    except InvalidOperation:
        return False


def _record(where: str, value: object) -> SuiteRecord:
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a JSON object, got {type(value).__name__}")
    try:
        return SuiteRecord.model_validate(value)
    except ValidationError as error:
        reasons = dict.fromkeys(_reason(dict(fault)) for fault in error.errors())
        raise DataError(f"{where}: {'; '.join(reasons)}") from error


def _reason(fault: dict[str, Any]) -> str:
    key = str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        known = ", ".join(SuiteRecord.model_fields)
        return f"unknown key {key!r}{near_matches(key, SuiteRecord.model_fields)}: keys are {known}"
    if fault["type"] == "missing":
        return f"key {key!r} is missing"
    if key == "reference":
        return "key 'reference': must be a string, a list of strings or null"
    return f"key {key!r}: {fault['msg']}"


def _parse_json(line: str) -> object:
    try:
        return json.loads(line, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("brackets are nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ValueError(f"key {repeated!r} is given twice in one object")
    return dict(pairs)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")
