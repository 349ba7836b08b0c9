from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Dialect
from sqlalchemy.dialects import postgresql, sqlite

from db.columns import (
    CompressedText,
    Document,
    UtcDateTime,
    pack_token_ids,
    unpack_token_ids,
)

DIALECTS = [sqlite.dialect(), postgresql.dialect()]  # type: ignore[no-untyped-call]  # SQLAlchemy


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_token_ids_come_back_equal(ids: list[int]) -> None:
    assert unpack_token_ids(pack_token_ids(ids)) == tuple(ids)


def test_token_ids_take_four_bytes_before_compression() -> None:
    assert len(pack_token_ids([7] * 4000)) < 100
    with pytest.raises(OverflowError):
        pack_token_ids([2**31])


@given(st.text(st.characters(exclude_categories=[])))
def test_any_text_comes_back_equal(text: str) -> None:
    column = CompressedText()
    stored = column.process_bind_param(text, DIALECTS[0])
    assert column.process_result_value(stored, DIALECTS[0]) == text


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_times_come_back_aware_and_in_utc(dialect: Dialect) -> None:
    column = UtcDateTime()
    berlin = datetime(2025, 1, 2, 1, 30, tzinfo=timezone(timedelta(hours=1)))
    stored = column.process_bind_param(berlin, dialect)
    read = column.process_result_value(stored, dialect)
    assert read == berlin
    assert read is not None
    assert read.tzinfo is UTC
    assert column.process_bind_param(None, dialect) is None
    assert column.process_result_value(None, dialect) is None


def test_times_without_zone_are_refused() -> None:
    with pytest.raises(ValueError, match="has no zone: give an aware one"):
        UtcDateTime().process_bind_param(datetime(2025, 1, 2), DIALECTS[0])


@pytest.mark.parametrize(
    ("value", "error"), [({"a": float("nan")}, ValueError), ({"a": object()}, TypeError)]
)
def test_documents_are_json(value: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        Document().process_bind_param(value, DIALECTS[0])
