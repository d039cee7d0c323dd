"""What is wrong with bytes that should have been a request.

::

    RowwiseError
    └── ProtocolError
        ├── MalformedRequest     not JSON, or JSON of another form
        ├── WrongKeys            an input is missing or unknown; both forms at once, or neither
        ├── EmptyRequest         no example in it
        ├── TooManyInstances     more examples than one request may hold
        ├── WrongShape           a value's shape is not the input's
        ├── WrongDtype           a value is not of the input's dtype, or out of its range
        ├── RaggedOutput         rows of an answer differ in shape, and the format has only tensors
        └── UnknownSignature     "signature_name" names none of the model's
"""

from __future__ import annotations

from server.errors import RowwiseError

__all__ = [
    "EmptyRequest",
    "MalformedRequest",
    "ProtocolError",
    "RaggedOutput",
    "TooManyInstances",
    "UnknownSignature",
    "WrongDtype",
    "WrongKeys",
    "WrongShape",
]


class ProtocolError(RowwiseError):
    """A request that can't be read. The sentence says where in it, what was expected and what came."""


class MalformedRequest(ProtocolError):
    """The body is not JSON, or not the object that the format asks for."""


class WrongKeys(ProtocolError):
    """The keys of an example, or of the request, are not those that the model has."""


class EmptyRequest(ProtocolError):
    """The request holds no example."""


class TooManyInstances(ProtocolError):
    """The request holds more examples than ``max_instances``."""

    def __init__(self, n: int, *, limit: int) -> None:
        super().__init__(
            f"the request holds {n} examples, at most {limit} are allowed (max_instances): "
            "send them in several requests"
        )
        self.n = n
        self.limit = limit


class WrongShape(ProtocolError):
    """A value's shape is not the one of its input."""


class WrongDtype(ProtocolError):
    """A value can't be one of its input's dtype."""


class RaggedOutput(ProtocolError):
    """The rows of an output differ in shape, so that no tensor holds them all."""

    def __init__(self, output: str, one: str, other: str) -> None:
        super().__init__(
            f"output {output!r}: its rows differ in shape ({one} and {other}), and a tensor can't hold both; "
            "send one example in each request, or ask in JSON with ':predict'"
        )


class UnknownSignature(ProtocolError):
    """The model has no signature of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"signature_name {name!r} is unknown: this model answers to 'serving_default', or to none at all"
        )
        self.name = name
