"""What a client of any protocol of the matrix asks and is answered, and what a protocol can say.

``carries`` tells what a form has no place for; the server must refuse that with a sentence
(``test_what_a_form_can_not_carry...``), never garble it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from server.protocol import Array
from server.signature import TensorSignature
from tests.web.conformance.serving import Server

__all__ = ["HALVES", "Answered", "Asked", "Protocol"]

HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Asked:
    """A question. Shapes: ``inputs`` are ``[n, *example]``; ``outputs`` the signature's, those that are expected."""

    model: str
    inputs: Mapping[str, tuple[str, Array]]
    outputs: Sequence[TensorSignature]
    only: Sequence[str] = ()
    id: str = ""
    version: int | None = None
    label: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    in_pieces: bool = False

    @property
    def wanted(self) -> dict[str, TensorSignature]:
        """The outputs that should come back, by name, in the order that was asked for."""
        by_name = {tensor.name: tensor for tensor in self.outputs}
        return {name: by_name[name] for name in self.only or by_name}

    @property
    def lines(self) -> list[str]:
        """The headers of an HTTP request."""
        return [f"{name}: {value}" for name, value in self.headers.items()]

    def path(self, template: str) -> str:
        """A path of the model, its version or its label."""
        chosen = f"/versions/{self.version}" if self.version is not None else ""
        chosen = f"/labels/{self.label}" if self.label else chosen
        return template.replace("MODEL", self.model + chosen)


@dataclass(frozen=True)
class Answered:
    """An answer, as the client reads it; empty or None where the protocol does not say it."""

    outputs: dict[str, Array]
    id: str | None = None
    model: str | None = None
    version: str | None = None


class Protocol:
    """One way to ask."""

    name = ""
    is_http = True
    has_filters = True
    has_ids = True
    has_parameters = True
    #: False: it is for models of one input.
    has_names = True

    def carries(self, dtype: str, shape: Sequence[int | str], *, n: int) -> bool:
        """True if ``n`` examples of that dtype and of a signature's shape have a form here."""
        return True

    def keeps_nan_bits(self) -> bool:
        """True if NaN is bits here, not a word."""
        return True

    def ask(self, server: Server, asked: Asked) -> Answered:
        """Ask. Errors: Refused."""
        raise NotImplementedError
