"""When tokens end. They do so by the calendar, so by the wall clock, which whoever decides here is handed.

A server whose clock is set forward refuses tokens too early, one whose clock is set back too late: the alternative, to
count from when the file was read, would begin again with every start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

from server.rights.grants import Grant

__all__ = ["ExpiryNotices", "parse_expiry", "shown_date"]

_DURATION = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_DAY_S = 86_400.0
#: The log says it when so many days are left, and when none are.
_TOLD_AT_DAYS = (0, 1, 3, 7)


def parse_expiry(text: str, *, now: datetime) -> datetime:
    """Return the moment that "30d" (h, d, w), "2027-01-31" (its first moment, UTC) or a time with its zone means.

    Errors: ValueError with a sentence, also for what is past.
    """
    if found := _DURATION.fullmatch(text):
        return (now + int(found[1]) * _UNITS[found[2]]).replace(microsecond=0)
    try:
        if len(text) == len("2027-01-31"):
            moment = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
        else:
            moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: expected 30d, 12h or 4w, 2027-01-31, or 2027-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} names no time zone: end it in Z or +02:00")
    if moment <= now:
        raise ValueError(f"{text!r} is past")
    return moment.astimezone(UTC)


def shown_date(ends_s: float) -> str:
    """Return a moment of Unix time as people read it, in UTC."""
    return datetime.fromtimestamp(ends_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class ExpiryNotices:
    """What the log is to say of tokens that end: 7, 3 and 1 days before, and when they have; each thing once."""

    def __init__(self) -> None:
        #: Of the tokens that there were at the last look: name, moment, days that were left.
        self._told: set[tuple[str, float, int]] = set()

    def due(self, grants: Iterable[Grant], *, now_s: float) -> list[str]:
        """Return what there is to say now, which is said by that."""
        steps: dict[tuple[str, float, int], str] = {}
        for grant in grants:
            if grant.ends_s is None:
                continue
            left_s = grant.ends_s - now_s
            n_days = next((days for days in _TOLD_AT_DAYS if left_s <= days * _DAY_S), None)
            if n_days is not None:
                when = f"token {grant.name!r} {'ends' if n_days else 'expired'} on {shown_date(grant.ends_s)}"
                todo = "make its successor" if n_days else "revoke it"
                steps[grant.name, grant.ends_s, n_days] = f"{when}: {todo} (rowwise token)"
        sentences = [sentence for step, sentence in steps.items() if step not in self._told]
        self._told = set(steps)
        return sentences
