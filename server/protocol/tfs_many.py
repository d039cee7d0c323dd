"""Many requests at once: one pass of the parser over all of their numbers, one of the writer over all of their answers.

A parser, a writer and NumPy each cost more to call than to run on the few numbers of one request; and what a request
needs of the processor's caches, the one before it has just thrown out. So requests that came together are read
together: what stands between the brackets of ``{"instances": [...]}`` is cut out of each body, joined into one array,
and parsed once. Anything else about a body, and everybody's body is read alone, which tells what is wrong with whose.

Why no body can be read as part of another one. There is no quotation mark in what was joined, so every bracket in it is
one. Each piece has as many that open as that close, and begins with one that opens; so where two pieces meet all
brackets but the outermost are closed, and a piece is a list of whole elements. Each element is then found to have the
shape of a row and as many brackets as that takes, and each piece is known to have so many rows.

Measured on bodies of one row of 64 floats: 5.3 us a request when 32 are read together, 15 us alone; answers of ten
floats 1.5 us against 5.7 us.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from server.protocol.rows import JSON, Array, Column, Encoded
from server.protocol.tfs_encode import NATIVE

__all__ = ["OPENINGS", "RowTexts", "cells", "cut_out", "row_texts"]

#: How a body may begin and end, as the writers of JSON in common use have it.
OPENINGS = frozenset({b'{"instances":[', b'{"instances": [', b'{ "instances": ['})
_OPEN, _CLOSE = b"[]"
_JSON_ONLY = (JSON,)


def cut_out(bodies: Sequence[bytes], *, row_brackets: int, max_instances: int) -> tuple[bytes, list[int]] | None:
    """Return the rows of all bodies as one JSON array, and how many rows each has; None if one of them is unusual.

    ``row_brackets``: arrays in a row, itself included; at least 1.
    """
    pieces, counts = [], []
    for body in bodies:
        start = body.find(b"[") + 1
        piece = body[start:-2]
        n_open = piece.count(b"[")
        n, rest = divmod(n_open, row_brackets)
        if (
            rest
            or not 0 < n <= max_instances
            or body[:start] not in OPENINGS
            or body[-2:] != b"]}"
            or piece[0] != _OPEN
            or piece[-1] != _CLOSE
            or piece.count(b"]") != n_open
        ):
            return None
        pieces.append(piece)
        counts.append(n)
    joined = b"[%b]" % b",".join(pieces)
    return None if b'"' in joined else (joined, counts)


class RowTexts:
    """The rows of a batch's outputs as JSON, ready to be put into answers. ``row``: how one is written around them."""

    __slots__ = ("_one", "_row", "_texts")

    def __init__(self, texts: Sequence[bytes] | Sequence[tuple[bytes, ...]], row: bytes) -> None:
        self._texts = texts
        self._row = row
        self._one = b'{"predictions":[%b]}' % row

    def answer(self, start: int, stop: int, _id_text: bytes | None) -> Encoded:
        """Return the answer that has these rows."""
        texts = self._texts
        if stop - start == 1:
            return self._one % texts[start], _JSON_ONLY
        return b'{"predictions":[%b]}' % b",".join([self._row % text for text in texts[start:stop]]), _JSON_ONLY


def row_texts(outputs: Sequence[Column], names: Sequence[str], n_rows: int) -> RowTexts | None:
    """Write the first ``n_rows`` of a batch's outputs; None where it takes more than the writer's own numbers.

    Shapes: ``[bucket, *shape]`` each.
    """
    columns: list[list[bytes]] = []
    values: list[bytes] = []
    for output in outputs:
        column = cells(output, n_rows)
        if column is None:
            return None
        rank = output.ndim - 1  # type: ignore[union-attr]
        columns.append(column)
        values.append(b"[" * rank + b"%b" + b"]" * rank)
    if len(columns) == 1:
        return RowTexts(columns[0], values[0])
    keys = [orjson.dumps(name).replace(b"%", b"%%") for name in names]
    row = b",".join([b"%b:%b" % member for member in zip(keys, values, strict=True)])
    return RowTexts(list(zip(*columns, strict=True)), b"{" + row + b"}")


def cells(output: Column, n_rows: int) -> list[bytes] | None:
    """Return the first ``n_rows`` rows of an output as JSON, without their outermost and innermost brackets.

    None where it takes more than the writer's own numbers, or there are none.
    """
    if isinstance(output, list) or not _is_plain(output):
        return None
    text = orjson.dumps(output[:n_rows], option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" in text:  # not finite
        return None
    rank = output.ndim - 1
    texts = text[rank + 1 : -rank - 1].split(b"]" * rank + b"," + b"[" * rank)
    return texts if len(texts) == n_rows else None


def _is_plain(output: Array) -> bool:
    return bool(output.ndim) and output.dtype.char in NATIVE and output.dtype.isnative and output.flags.c_contiguous
