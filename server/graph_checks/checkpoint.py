"""What variables a SavedModel holds and how large they are, from the list that lies beside them.

Theory of operation. ``variables.index`` is a table in LevelDB's format: blocks of keys and values in order, each key
without what it shares with the one before; a block at the end says where the others are. A value says where in which
shard a variable lies, its shape and its dtype. So nothing of the variables themselves is read, and nothing of
TensorFlow runs. Whatever TensorFlow would read otherwise than it is read here is refused.

Source: LevelDB, "table_format.md"; TensorFlow, "tensor_bundle.proto".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import tensorflow as tf

from server.graph_checks._tensorflow import BundleEntryProto, BundleHeaderProto
from server.graph_checks.constants import tensor_bytes
from server.graph_checks.errors import GraphDamaged, GraphTooLarge, quoted
from server.graph_checks.limits import GraphLimits

__all__ = ["check_variables"]

_INDEX = Path("variables", "variables.index")
_FOOTER_BYTES = 48
_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
#: Behind each block: its compression, and a checksum.
_TRAILER_BYTES = 5
#: Of these, the bytes in the file are not those in memory.
_OF_OTHER_LENGTH = (tf.string.as_datatype_enum,)


def check_variables(saved_model: Path, limits: GraphLimits) -> int:
    """Return how many bytes the variables take in memory. Errors: GraphDamaged; GraphTooLarge; OSError."""
    path = saved_model / _INDEX
    if not path.exists():
        return 0
    size = path.stat().st_size
    if size > limits.max_index_bytes:
        raise GraphTooLarge(f"{path.name} has {size} bytes, over max_index_bytes = {limits.max_index_bytes}")
    try:
        entries = list(_entries(path.read_bytes()))
        header = BundleHeaderProto.FromString(entries[0][1]) if entries else BundleHeaderProto()
        variables = [(key, BundleEntryProto.FromString(value)) for key, value in entries[1:]]
    except (ValueError, IndexError) as error:
        raise _damaged(str(error)) from error
    except Exception as error:  # protobuf's DecodeError, which only protobuf itself exports
        raise _damaged(f"an entry can't be read: {error}") from error
    if entries and entries[0][0] != b"":
        raise _damaged("it has no header")
    if len(variables) > limits.max_variables:
        raise GraphTooLarge(f"the model has {len(variables)} variables, over max_variables = {limits.max_variables}")
    shards = _Shards(path, header.num_shards)
    total = 0
    for key, entry in variables:
        name = quoted(key.decode("utf-8", "backslashreplace"))
        n_bytes = _checked(name, entry, shards)
        total += n_bytes
        for limit, counted in (("max_variable_bytes", n_bytes), ("max_variables_bytes", total)):
            if counted > getattr(limits, limit):
                raise GraphTooLarge(f"variable {name}: {counted} bytes, over {limit} = {getattr(limits, limit)}")
    return total


def _checked(name: str, entry: Any, shards: _Shards) -> int:
    """Return the bytes that a variable takes. Errors: GraphDamaged if it does not lie where the list says."""
    n_bytes = tensor_bytes(entry.dtype, entry.shape)
    if n_bytes is None:
        raise _damaged(f"variable {name} has no shape or dtype that can be restored")
    if entry.slices:
        return n_bytes  # its parts are entries of their own
    if not 0 <= entry.offset <= entry.offset + entry.size <= shards.size_of(entry.shard_id):
        raise _damaged(f"variable {name} lies outside of its file")
    if entry.dtype not in _OF_OTHER_LENGTH and n_bytes != entry.size:
        raise _damaged(f"variable {name} has {entry.size} bytes, its shape says {n_bytes}")
    return max(n_bytes, int(entry.size))


class _Shards:
    """How large the files are that the variables lie in."""

    def __init__(self, index: Path, n_shards: int) -> None:
        self._index = index
        self._n_shards = n_shards
        self._sizes: dict[int, int] = {}

    def size_of(self, shard: int) -> int:
        """Errors: GraphDamaged if there is no such file."""
        if shard not in self._sizes:
            name = f"{self._index.stem}.data-{shard:05d}-of-{self._n_shards:05d}"
            path = self._index.with_name(name)
            if not 0 <= shard < self._n_shards or not path.is_file():
                raise _damaged(f"the file {name!r} is not there")
            self._sizes[shard] = path.stat().st_size
        return self._sizes[shard]


def _entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the table's keys and values in order. Errors: ValueError; IndexError."""
    footer = table[-_FOOTER_BYTES:]
    if len(footer) < _FOOTER_BYTES or not footer.endswith(_MAGIC):
        raise ValueError("it is no table of variables")
    _, position = _handle(footer, 0)  # of the table's own notes
    where, _ = _handle(footer, position)
    last = None
    for _, value in _block(table, *where):
        block, _ = _handle(value, 0)
        for key, content in _block(table, *block):
            if last is not None and key <= last:
                raise ValueError("its entries are not in order")
            last = key
            yield key, content


def _block(table: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    end = offset + size
    if end + _TRAILER_BYTES > len(table) - _FOOTER_BYTES or size < 4:
        raise ValueError("a block lies outside of it")
    if table[end]:
        raise ValueError("a block is compressed")
    block = table[offset:end]
    n_restarts = int.from_bytes(block[-4:], "little")
    entries_end = size - 4 * (n_restarts + 1)
    if entries_end < 0:
        raise ValueError("a block is damaged")
    restarts = {int.from_bytes(block[at : at + 4], "little") for at in range(entries_end, size - 4, 4)}
    position, key, starts = 0, b"", []
    while position < entries_end:
        start = position
        shared, position = _varint(block, position)
        unshared, position = _varint(block, position)
        length, position = _varint(block, position)
        if position + unshared + length > entries_end or shared > len(key):
            raise ValueError("a block is damaged")
        if start in restarts and shared:
            raise ValueError("a block is damaged")
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + length]
        position += length
        starts.append(start)
    # TensorFlow looks entries up from these: they must be where entries begin, or it would read others.
    if not restarts <= {*starts, 0} or any(first >= second for first, second in pairwise(sorted(restarts))):
        raise ValueError("a block is damaged")


def _handle(block: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = _varint(block, position)
    size, position = _varint(block, position)
    return (offset, size), position


def _varint(block: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = block[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number is too long")


def _damaged(why: str) -> GraphDamaged:
    return GraphDamaged(f"{_INDEX.as_posix()} is damaged: {why}; save the model again with tf.saved_model.save")
