"""Moments as stores spell them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sweep.model.clock import parse_timestamp, timestamp


@pytest.mark.parametrize(
    "text",
    [
        "9999-12-31T23:59:59-14:00",
        "0001-01-01T00:00:00+14:00",
        "0001-01-01T00:00:00+00:01",
        "10000-01-01T00:00:00",
        "2026-11-29T16:26:39\ud800",
        "",
        None,
        10**400,
    ],
)
def test_what_spells_no_moment(text: object) -> None:
    assert parse_timestamp(text) is None


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+00:00"])
def test_the_ends_of_time_are_read_and_written(text: str) -> None:
    moment = parse_timestamp(text)
    assert moment is not None
    assert timestamp(moment) == text


def test_a_zone_is_turned_into_utc() -> None:
    assert parse_timestamp("2026-11-29T16:26:39-02:00") == datetime(2026, 11, 29, 18, 26, 39, tzinfo=UTC)
    assert parse_timestamp("2026-11-29T16:26:39") == datetime(2026, 11, 29, 16, 26, 39, tzinfo=UTC)
