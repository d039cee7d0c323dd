"""When tokens end: what people may write, and what the log says, each thing once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from server.rights import ExpiryNotices, Grant, Scope, TokenEntry, add_token, parse_expiry, read_tokens, shown_date

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30d", "2026-12-31T12:00:00Z"),
        ("12h", "2026-12-02T00:00:00Z"),
        ("4w", "2026-12-29T12:00:00Z"),
        ("2027-01-31", "2027-01-31T00:00:00Z"),
        ("2027-01-31T12:00:00Z", "2027-01-31T12:00:00Z"),
        ("2027-01-31T12:00:00+02:00", "2027-01-31T10:00:00Z"),
    ],
)
def test_a_moment_is_a_time_from_now_a_day_or_a_time_with_its_zone(text: str, expected: str) -> None:
    assert shown_date(parse_expiry(text, now=NOW).timestamp()) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("soon", "is no time"),
        ("0d", "is no time"),
        ("-3d", "is no time"),
        ("2027-02-31", "is no time"),
        ("", "is no time"),
        ("2027-01-31T12:00:00", "no time zone"),
        ("2026-12-01", "is past"),
        ("2026-12-01T12:00:00Z", "is past"),
    ],
)
def test_what_is_no_moment_to_come_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_expiry(text, now=NOW)


def entry(**more: object) -> TokenEntry:
    return TokenEntry.model_validate({"name": "shop", "sha256": "0" * 64, "scopes": ["read"], **more})


def test_the_file_keeps_the_moment_as_a_time_of_toml(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    ends = parse_expiry("30d", now=NOW)
    add_token(path, entry(expires=ends))
    assert "expires = 2026-12-31T12:00:00Z\n" in path.read_text()
    assert read_tokens(path)[0].expires == ends


@pytest.mark.parametrize("written", ["2027-01-31", "2027-01-31T12:00:00", '"soon"', "[]"])
def test_a_moment_in_the_file_has_a_zone(tmp_path: Path, written: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(f'[[tokens]]\nname = "shop"\nsha256 = "{"0" * 64}"\nscopes = ["read"]\nexpires = {written}\n')
    with pytest.raises(ValueError, match="token 'shop': expires"):
        read_tokens(path)


def test_the_log_says_seven_three_and_one_days_before_and_at_the_end_once_each() -> None:
    notices = ExpiryNotices()
    ends_s = NOW.timestamp()
    grants = [Grant("shop", [Scope.READ], ends_s=ends_s), Grant("ci", [Scope.READ])]
    said = [
        notices.due(grants, now_s=ends_s - days * DAY_S) for days in (9.0, 7.5, 6.9, 5.0, 2.9, 2.0, 0.9, 0.5, 0.0, -1.0)
    ]
    assert [len(each) for each in said] == [0, 0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert said[2] == ["token 'shop' ends on 2026-12-01T12:00:00Z: make its successor (rowwise token)"]
    assert said[8] == ["token 'shop' expired on 2026-12-01T12:00:00Z: revoke it (rowwise token)"]
    later = [Grant("shop", [Scope.READ], ends_s=ends_s + timedelta(days=30).total_seconds())]
    assert notices.due(later, now_s=ends_s) == []
    assert len(notices.due(grants, now_s=ends_s)) == 1, "it is another one again"
