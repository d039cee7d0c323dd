"""Tokens: random, so that they need no salt and no slow hash, and easy to recognize where they should not be.

A token is ``rowwise_``, 32 random letters and digits (190 bits), and 6 more that follow from them. The prefix lets
scanners of repositories and logs find one (``rowwise_[0-9A-Za-z]{38}``), the checksum lets them leave out what only
looks like one. Source: the form is that of GitHub's tokens (2021).
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
import zlib

__all__ = ["digest_of", "is_token", "new_token"]

_PREFIX = "rowwise_"
_LETTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_N_RANDOM = 32
#: 62**6 is more than 2**32.
_N_CHECK = 6
_TOKEN = re.compile(rf"{_PREFIX}[0-9A-Za-z]{{{_N_RANDOM + _N_CHECK}}}")


def new_token() -> str:
    """Return a token that nobody has."""
    random = "".join(secrets.choice(_LETTERS) for _ in range(_N_RANDOM))
    return f"{_PREFIX}{random}{_check(random)}"


def is_token(text: str) -> bool:
    """Return whether a text has the form of a token, its checksum included."""
    return _TOKEN.fullmatch(text) is not None and _check(text[len(_PREFIX) : -_N_CHECK]) == text[-_N_CHECK:]


def digest_of(token: bytes) -> bytes:
    """Return what is kept of a token: SHA-256, 32 bytes."""
    return hashlib.sha256(token).digest()


def _check(random: str) -> str:
    number = zlib.crc32(random.encode("ascii"))
    letters = []
    for _ in range(_N_CHECK):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(reversed(letters))
