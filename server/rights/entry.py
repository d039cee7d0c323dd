"""What is said of one token, in a tokens file or in the settings: everything but the token."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

__all__ = ["Scope", "TokenEntry"]


class Scope(StrEnum):
    """What a token is for. ``MANAGE`` includes ``READ``: who changes models may look at them."""

    PREDICT = "predict"
    READ = "read"
    MANAGE = "manage"

    @property
    def bit(self) -> int:
        """A number of its own, so that sets of scopes can be compared at once."""
        return 1 << list(Scope).index(self)


class TokenEntry(BaseModel):
    """A token by its name and its SHA-256, what it grants, on which models, and how often."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: What logs call it.
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]
    #: Of the token's bytes, in 64 hexadecimal digits.
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)]
    #: From when on it is refused, with its time zone; None: never.
    expires: AwareDatetime | None = None
    #: Names of models, with ``*``, ``?`` and ``[...]`` as in file names; what none of them fits is out of reach.
    models: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(min_length=1)] = ("*",)
    #: Rows a second that may be predicted, and how many at once after a pause; None: no limit, and one second's rows.
    predict_rows_per_s: Annotated[float, Field(gt=0)] | None = None
    predict_rows_burst: Annotated[float, Field(ge=1)] | None = None
    #: The same for all other requests that need the token.
    manage_per_s: Annotated[float, Field(gt=0)] | None = None
    manage_burst: Annotated[float, Field(ge=1)] | None = None
