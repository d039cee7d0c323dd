"""Many messages of tensors at once: the values of those of one layout are one array for each input.

What a message of a known layout means, another one of that layout has shown, which was read exactly (``proto_layout``);
what is left are values, and those are the bytes that memory holds. Where they are not, or rows differ in length, each
message is read by itself, and their rows are put together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from server.protocol.errors import ProtocolError
from server.protocol.proto_layout import Layout, Span
from server.protocol.rows import Array, Column, Octets, Rows, end_to_end
from server.protocol.wire import AnswerForm, Asked, ManyRequests, ReadTogether, WireRequest
from server.signature import ModelSignature

__all__ = ["ReadMessage", "TensorFormat", "TensorMessage"]


class ReadMessage(WireRequest, Protocol):
    """A request that was read exactly."""

    @property
    def form(self) -> AnswerForm:
        """How its answer is written, the same object for requests that are answered alike."""

    @property
    def id_text(self) -> bytes | None:
        """What its answer repeats."""


class TensorMessage(Protocol):
    """A message of which nothing was read but whom it asks."""

    def decode(self, body: Octets, asked: Asked, *, max_instances: int) -> ReadMessage:
        """Read the tensors. Errors: every ProtocolError."""


class _MessageClass(Protocol):
    def __call__(self, body: bytes, /) -> TensorMessage:
        """Errors: MalformedRequest; UnknownSignature."""


class _Prepared:
    """What is known of the requests of one layout to one version."""

    __slots__ = ("columns", "form", "is_alone", "n", "name", "signature", "version")

    def __init__(self, body: bytes, layout: Layout, request: ReadMessage, asked: Asked) -> None:
        self.signature: ModelSignature = asked.signature
        self.name = asked.name
        self.version = asked.version
        self.n = request.rows.n
        self.form = request.form
        #: True: it has a deadline or a priority of its own.
        self.is_alone = request.timeout_s is not None or request.priority is not None
        #: Where the values of each input are, their dtype and the shape of one row; None: they are to be read exactly.
        self.columns = _columns(body, layout, request.rows, asked)

    def is_of(self, asked: Asked) -> bool:
        """Return whether it is known of this version."""
        return self.signature is asked.signature and self.version == asked.version and self.name == asked.name


def _columns(
    body: bytes, layout: Layout, rows: Rows, asked: Asked
) -> list[tuple[Span, np.dtype[np.generic], tuple[int, ...]]] | None:
    """Return where the rows' numbers are in a message; None if they are not there as memory holds them."""
    found = []
    for tensor, column in zip(asked.signature.inputs, rows.columns, strict=True):
        span = layout.values.get(tensor.name)
        if span is None or isinstance(column, list) or column.dtype == object or not column.size:
            return None
        if column.tobytes() != body[span[0] : span[1]]:
            return None
        found.append((span, column.dtype, column.shape[1:]))
    return found


class TensorFormat:
    """How messages of one layout are read; without a ``layout``, those that are known by nothing but their class."""

    __slots__ = ("_exact", "_prepared", "layout")

    #: None of it is.
    n_json: int | None = None
    #: Comparing it with one that is known costs less than reading it: with all else a sixth of what a call takes.
    prefers_one = False

    def __init__(self, exact: _MessageClass, layout: Layout | None = None) -> None:
        self._exact = exact
        self.layout = layout
        self._prepared: _Prepared | None = None

    @staticmethod
    def n_parsed(body: Octets, _asked: Asked) -> int:
        """Return how many of a body's bytes may have to be looked at: all, where values are typed ones."""
        return len(body)

    def decode(self, body: Octets, asked: Asked, *, max_instances: int) -> ReadMessage:
        """Read a message. Errors: every ProtocolError."""
        return self._exact(bytes(body)).decode(body, asked, max_instances=max_instances)

    @staticmethod
    def decode_many(
        bodies: Sequence[bytes], formats: Sequence[TensorFormat], asked: Asked, *, max_instances: int
    ) -> ReadTogether:
        """Read messages to one version, each by its own format."""
        together = ReadTogether()
        alike: dict[int, list[int]] = {}
        for member, format_ in enumerate(formats):
            alike.setdefault(id(format_), []).append(member)
        each: list[tuple[int, ReadMessage]] = []
        for members in alike.values():
            own = formats[members[0]]
            prepared = own.prepared(bodies[members[0]], asked, max_instances)
            if prepared is not None and prepared.columns is not None:
                if prepared.is_alone or prepared.n > max_instances:
                    together.alone += members
                elif (many := own.joined(bodies, members, prepared)) is not None:
                    together.groups.append(many)
                # else a value among them is none: who is left is tried again, with fewer.
                continue
            for member in members:
                try:
                    request = own.decode(bodies[member], asked, max_instances=max_instances)
                except ProtocolError:
                    together.alone.append(member)
                    continue
                if request.timeout_s is not None or request.priority is not None:
                    together.alone.append(member)
                else:
                    each.append((member, request))
        together.groups += _put_together(each)
        return together

    def prepared(self, body: bytes, asked: Asked, max_instances: int) -> _Prepared | None:
        """Return what is known of a layout's requests to a version; None: nothing."""
        if self.layout is None:
            return None
        prepared = self._prepared
        if prepared is None or not prepared.is_of(asked):
            try:
                request = self.decode(body, asked, max_instances=max_instances)
            except ProtocolError:
                return None
            prepared = self._prepared = _Prepared(body, self.layout, request, asked)
        return prepared

    def joined(self, bodies: Sequence[bytes], members: Sequence[int], prepared: _Prepared) -> ManyRequests | None:
        """Return requests of this layout as one; None: a value among them is none."""
        assert prepared.columns is not None
        assert self.layout is not None
        n_rows = prepared.n * len(members)
        columns: list[Column] = []
        for (start, stop), dtype, shape in prepared.columns:
            octets = b"".join([bodies[member][start:stop] for member in members])
            if dtype.kind == "b" and max(octets) > 1:
                return None
            values: Array = np.frombuffer(octets, dtype)
            columns.append(values.reshape(n_rows, *shape))
        id_of = self.layout.id_of
        return ManyRequests(
            members=members,
            rows=Rows(n_rows, tuple(columns)),
            counts=[prepared.n] * len(members),
            form=prepared.form,
            id_texts=[None] * len(members) if self.layout.id is None else [id_of(bodies[member]) for member in members],
        )


def _put_together(each: Sequence[tuple[int, ReadMessage]]) -> list[ManyRequests]:
    """Return requests that were read one by one as one for each form of answers."""
    by_form: dict[int, list[tuple[int, ReadMessage]]] = {}
    for one in each:
        by_form.setdefault(id(one[1].form), []).append(one)
    return [
        ManyRequests(
            members=[member for member, _ in group],
            rows=end_to_end([request.rows for _, request in group]),
            counts=[request.rows.n for _, request in group],
            form=group[0][1].form,
            id_texts=[request.id_text for _, request in group],
        )
        for group in by_form.values()
    ]
