"""Tokens for tests: their names are what they may do."""

from __future__ import annotations

from typing import Any

from server.rights import TokenEntry, digest_of

__all__ = ["ALL", "bearer", "entry", "tokens"]

#: The token that may do everything.
ALL = "all"


def entry(name: str, *scopes: str, **more: Any) -> TokenEntry:
    """A token that is spelled as its name."""
    return TokenEntry.model_validate({"name": name, "sha256": digest_of(name.encode()).hex(), "scopes": scopes, **more})


def tokens() -> tuple[TokenEntry, ...]:
    """One for each scope on models called ``s...``, and one that may do all to others."""
    return (
        entry("predict", "predict", models=["s*"]),
        entry("read", "read", models=["s*"]),
        entry("manage", "manage", models=["s*"]),
        entry("elsewhere", "predict", "manage", models=["other-*"]),
        entry("read-all", "read"),
    )


def bearer(token: str | None) -> dict[str, str]:
    """Headers of a request with a token, or without."""
    return {} if token is None else {"authorization": f"Bearer {token}"}
