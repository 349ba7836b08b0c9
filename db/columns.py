"""Column types that behave the same on SQLite and PostgreSQL."""

from __future__ import annotations

import array
import json
import sys
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import JSON, DateTime, LargeBinary
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC datetimes: SQLite keeps no zone, PostgreSQL answers in the session's zone.

    Raises:
        ValueError: on writing a datetime without a zone.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return what the driver stores."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"datetime {value} has no zone: give an aware one, such as UTC")
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the aware UTC datetime read."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


class Document(TypeDecorator[Any]):
    """A JSON value; None is NULL, and what JSON cannot say is refused before the driver sees it.

    Raises:
        ValueError: on writing a number that is not finite.
        TypeError: on writing an object that JSON does not know.
    """

    impl = JSON(none_as_null=True)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002 - fixed by the base class
        """Return `value` as it is, once it is known to be JSON."""
        json.dumps(value, allow_nan=False)
        return value


class CompressedText(TypeDecorator[str]):
    """Text as zlib-compressed UTF-8: small, and free of PostgreSQL's ban on the NUL character."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002 - fixed by the base class
        """Return the compressed bytes."""
        return None if value is None else zlib.compress(value.encode("utf-8", "surrogatepass"))

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - fixed by the base class
        """Return the text."""
        return None if value is None else zlib.decompress(value).decode("utf-8", "surrogatepass")


class TokenIds(TypeDecorator[tuple[int, ...]]):
    """Token ids as zlib-compressed little-endian int32."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Sequence[int] | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002 - fixed by the base class
        """Return the compressed bytes."""
        return None if value is None else pack_token_ids(value)

    def process_result_value(
        self,
        value: bytes | None,
        dialect: Dialect,  # noqa: ARG002 - fixed by the base class
    ) -> tuple[int, ...] | None:
        """Return the ids."""
        return None if value is None else unpack_token_ids(value)


class Microseconds(TypeDecorator[tuple[float, ...]]):
    """Seconds, rounded to the microsecond, as zlib-compressed integers; NULL reads as none."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Sequence[float] | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002 - fixed by the base class
        """Return the compressed bytes."""
        return _pack("q", [round(seconds * 1e6) for seconds in value]) if value else None

    def process_result_value(
        self,
        value: bytes | None,
        dialect: Dialect,  # noqa: ARG002 - fixed by the base class
    ) -> tuple[float, ...]:
        """Return the seconds."""
        return () if value is None else tuple(number / 1e6 for number in _unpack("q", value))


def pack_token_ids(ids: Sequence[int]) -> bytes:
    """Return `ids` as zlib-compressed little-endian int32.

    Raises:
        OverflowError: if an id does not fit into 32 bits.
    """
    return _pack("i", ids)


def unpack_token_ids(data: bytes) -> tuple[int, ...]:
    """Return the ids that `pack_token_ids` wrote."""
    return _unpack("i", data)


def _pack(typecode: Literal["i", "q"], values: Sequence[int]) -> bytes:
    return zlib.compress(_little_endian(array.array(typecode, values)).tobytes())


def _unpack(typecode: Literal["i", "q"], data: bytes) -> tuple[int, ...]:
    values = array.array(typecode)
    values.frombytes(zlib.decompress(data))
    return tuple(_little_endian(values))


def _little_endian(values: array.array[int]) -> array.array[int]:
    if sys.byteorder == "big":
        values.byteswap()
    return values
