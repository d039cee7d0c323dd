"""The tokens in force, by their digests.

A token is looked up, not compared: who measures how long that takes learns something about SHA-256 of what he sent,
which tells nothing about a token that he doesn't have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from server.rights.entry import Scope, TokenEntry
from server.rights.grants import Grant
from server.rights.rates import Rates
from server.rights.tokens import digest_of
from server.rights.tokens_file import read_tokens

__all__ = ["Keyring"]

#: The token of the setting ``token``, in logs.
_THE_TOKEN = "token"  # noqa: S105 - a name


class Keyring:
    """Who has which token."""

    def __init__(self, grants: Mapping[bytes, Grant], *, is_configured: bool, has_scoped: bool) -> None:
        self._grants = dict(grants)
        #: Whether there are to be tokens: without any, callers of this machine manage. A file that has lost its last
        #: token leaves nobody.
        self.is_configured = is_configured
        #: Whether there are others than the one that may do everything.
        self.has_scoped = has_scoped

    @classmethod
    def read(cls, *, token: str | None, entries: Iterable[TokenEntry], path: Path | None, rates: Rates) -> Keyring:
        """Gather the one token, those of the settings and those of a file. Errors: ValueError, with a sentence."""
        listed = (*entries, *(() if path is None else read_tokens(path)))
        grants: dict[bytes, Grant] = {}
        if token is not None:
            grants[digest_of(token.encode())] = Grant(_THE_TOKEN, Scope)
        for entry in listed:
            digest = bytes.fromhex(entry.sha256)
            if digest in grants:
                raise ValueError(f"token {entry.name!r} is there twice, in the settings or in the file of tokens")
            grants[digest] = Grant.of(entry, rates)
        scoped = bool(listed) or path is not None
        return cls(grants, is_configured=token is not None or scoped, has_scoped=scoped)

    @property
    def names(self) -> list[str]:
        """The tokens' names, sorted."""
        return sorted(grant.name for grant in self._grants.values())

    @property
    def ending(self) -> tuple[Grant, ...]:
        """What is granted for a time only."""
        return tuple(grant for grant in self._grants.values() if grant.ends_s is not None)

    def find(self, token: bytes) -> Grant | None:
        """Return what a token grants; None: it is none of these."""
        return self._grants.get(digest_of(token))
