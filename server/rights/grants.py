"""What somebody may do: scopes, on the models whose names fit a pattern, at a rate."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

from server.rights.entry import Scope, TokenEntry
from server.rights.rates import Rate, Rates

__all__ = ["ANYBODY", "LOCAL", "Grant"]

#: Names whose answer is remembered. Strangers can make up others.
_MAX_NAMES = 1_024


class Grant:
    """The rights of one caller."""

    __slots__ = ("_covered", "_fits", "bits", "ends_s", "managing", "name", "predicting", "scopes")

    def __init__(
        self,
        name: str,
        scopes: Iterable[Scope],
        models: Iterable[str] = ("*",),
        *,
        predicting: Rate | None = None,
        managing: Rate | None = None,
        ends_s: float | None = None,
    ) -> None:
        #: What logs call who has it.
        self.name = name
        given = frozenset(scopes)
        self.scopes = given | {Scope.READ} if Scope.MANAGE in given else given
        #: Those of its scopes.
        self.bits = sum(scope.bit for scope in self.scopes)
        patterns = tuple(models)
        #: None: every name does.
        self._fits = None if "*" in patterns else re.compile("|".join(map(translate, patterns)))
        self._covered: dict[str, bool] = {}
        #: How many rows may be predicted; None: as many as come.
        self.predicting = predicting
        #: How many other requests may be made.
        self.managing = managing
        #: From when on it is refused, in Unix time; None: never.
        self.ends_s = ends_s

    @classmethod
    def of(cls, entry: TokenEntry, rates: Rates) -> Grant:
        """Return what an entry grants; its buckets are found by its digest, so they outlive a reading of the file."""
        digest = bytes.fromhex(entry.sha256)
        predicting = managing = None
        if entry.predict_rows_per_s is not None:
            predicting = rates.rate(digest, per_s=entry.predict_rows_per_s, burst=entry.predict_rows_burst)
        if entry.manage_per_s is not None:
            managing = rates.rate(digest[8:], per_s=entry.manage_per_s, burst=entry.manage_burst)
        ends_s = None if entry.expires is None else entry.expires.timestamp()
        return cls(entry.name, entry.scopes, entry.models, predicting=predicting, managing=managing, ends_s=ends_s)

    def has_ended(self, now_s: float) -> bool:
        """Return whether it is to be refused, at a moment of Unix time."""
        return self.ends_s is not None and self.ends_s <= now_s

    @property
    def is_unrestricted(self) -> bool:
        """Whether it is for every model there may be."""
        return self._fits is None

    def covers(self, model: str) -> bool:
        """Return whether it is for a model of that name. It depends on the name alone, not on whether there is one."""
        if self._fits is None:
            return True
        covered = self._covered.get(model)
        if covered is None:
            covered = self._fits.match(model) is not None
            if len(self._covered) >= _MAX_NAMES:
                self._covered.clear()
            if len(model) <= _MAX_NAMES:
                self._covered[model] = covered
        return covered


#: Who asks what everybody may.
ANYBODY = Grant("anybody", Scope)
#: Who is on this machine where no token is configured.
LOCAL = Grant("local", Scope)
