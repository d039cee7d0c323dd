"""Many requests of the Open Inference Protocol at once: those of one form are one array for each input.

What a request means is known from its form (``oip_form``), so all that is left are values. Binary ones are put end to
end as they are. Arrays in JSON are joined and parsed as one, as in ``tfs_many``, which says why no value can be read as
a part of another's: each has as many brackets as its shape needs, begins with one, and no quotation mark is among them.
Where lengths vary, or values are strings, each request is read by itself, and their rows are put together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from server.protocol.errors import ProtocolError
from server.protocol.oip_form import Parts
from server.protocol.rows import Array, Column, Rows, end_to_end
from server.protocol.wire import ManyRequests, ReadTogether

if TYPE_CHECKING:
    from server.protocol.oip_codec import Prepared

__all__ = ["Found", "read_together"]

#: A request whose form is known: which one it is, its parts and plan, its body, and where its binary values begin.
Found: TypeAlias = "tuple[int, Parts, Prepared, bytes, int]"


def read_together(found: Sequence[Found], alone: list[int]) -> ReadTogether:
    """Read requests in groups of one form. ``alone`` gets those whose values are not what most are, too."""
    groups: dict[tuple[int, ...], list[Found]] = {}
    for one in found:
        _, (_, values, _), prepared, _, _ = one
        if prepared.is_joined:
            # Arrays are flat or nested.
            key = (id(prepared), *[value[1:2] == b"[" for value in values])
        else:
            key = (id(prepared.writer),)
        groups.setdefault(key, []).append(one)
    together = ReadTogether(alone=alone)
    for group in groups.values():
        many = _joined(group) if group[0][2].is_joined else _each(group, alone)
        if many is not None:
            together.groups.append(many)
    return together


def _joined(group: Sequence[Found]) -> ManyRequests | None:
    """Read requests of one plan and fixed shapes; None: somewhere among them is something else."""
    prepared = group[0][2]
    plan, columns = prepared.plan, dict[int, Array]()
    for place, (index, source) in enumerate(prepared.sources):
        array = source.read_many([values[place] for _, (_, values, _), _, _, _ in group])
        if array is None:
            return None
        columns[index] = array
    offset = 0
    for planned in plan.inputs:
        n_bytes = planned.n_bytes
        if n_bytes is not None:
            parts = [body[start + offset : start + offset + n_bytes] for _, _, _, body, start in group]
            array = prepared.readers[planned.index].of_bytes(parts[0] if len(parts) == 1 else b"".join(parts))
            if array is None:
                return None
            columns[planned.index] = array
            offset += n_bytes
    n_rows = plan.n * len(group)
    ordered: tuple[Column, ...] = tuple(
        columns[index].reshape(n_rows, *shape) for index, shape in enumerate(prepared.shapes)
    )
    return _many(group, Rows(n_rows, ordered), [plan.n] * len(group))


def _each(group: Sequence[Found], alone: list[int]) -> ManyRequests | None:
    """Read requests one by one, and put their rows together."""
    kept: list[Found] = []
    rows: list[Rows] = []
    for one in group:
        member, parts, prepared, body, start = one
        try:
            call = prepared.read(parts, body, start=start)
        except ProtocolError:
            call = None
        if call is None:
            alone.append(member)
        else:
            kept.append(one)
            rows.append(call.rows)
    return _many(kept, end_to_end(rows), [each.n for each in rows]) if kept else None


def _many(group: Sequence[Found], rows: Rows, counts: list[int]) -> ManyRequests:
    return ManyRequests(
        members=[member for member, *_ in group],
        rows=rows,
        counts=counts,
        form=group[0][2].writer,
        id_texts=[id_text for _, (_, _, id_text), _, _, _ in group],
    )
