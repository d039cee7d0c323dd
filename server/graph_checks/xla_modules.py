"""Which code outside of it a module of XLA calls, read from MLIR's binary form.

Theory of operation. The form has sections: the strings, the attributes (each a record of its dialect), and the
properties of ops, each a row of numbers of attributes. What an op calls is a string among its properties. So a module
without the name of an op that leaves the computation is fine; where custom calls are, the strings that long rows of
properties name must all be known. A custom call has eight properties, and no other op with six or more has a string.

JAX writes one custom call that calls nothing: the check of a dimension whose size is open, which XLA's loader carries
out itself.

Source: LLVM, "MLIR Bytecode Format", versions 5 and 6; StableHLO, "VhloBytecode.cpp".
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["leaves_by"]

_MAGIC = b"ML\xefR"
#: Version 5 brought properties; what came before is written by nobody any more.
_VERSIONS = (5, 6)
_STRINGS, _ATTRIBUTES, _OFFSETS, _PROPERTIES = 0, 2, 3, 8
#: Ops that leave the computation, as the form names them.
_LEAVING = (b"infeed_v", b"outfeed_v", b"send_v", b"recv_v")
_CUSTOM_CALL, _CUSTOM_CALL_V1 = b"custom_call", b"custom_call_v1"
#: Dialects whose ops XLA's loader takes too, and that are written in other ways.
_OTHER_DIALECTS = (b"stablehlo", b"mhlo", b"chlo")
#: What custom calls may name: the check above, and an empty configuration.
_KNOWN = frozenset({b"shape_assertion", b""})
#: A custom call has eight.
_MANY_PROPERTIES = 6
#: VHLO's record of a string: this number, then the string's.
_STRING_RECORD = 14


def leaves_by(module: bytes) -> str | None:
    """Return the name of what a module calls or exchanges outside of itself; None if it does not.

    Errors: ValueError if it is no module in MLIR's binary form, or not whole.
    """
    try:
        sections = _sections(module)
        strings = _strings(sections[_STRINGS])
        for name in strings:
            if name.startswith(_LEAVING) or name in _OTHER_DIALECTS:
                return name.decode("utf-8", "replace")
        calls = {name for name in strings if _CUSTOM_CALL in name}
        if not calls:
            return None
        # The old way of saying what is called is not in rows of properties.
        if calls != {_CUSTOM_CALL_V1} or b"call_target_name" in strings:
            return _CUSTOM_CALL.decode()
        named = dict(_named_strings(sections[_ATTRIBUTES], sections[_OFFSETS], strings))
        for row in _rows(sections[_PROPERTIES]):
            unknown = {named[number] for number in row if number in named} - _KNOWN
            if len(row) >= _MANY_PROPERTIES and unknown:
                return f"{_CUSTOM_CALL.decode()} of {unknown.pop().decode('utf-8', 'replace')[:60]!r}"
    except (IndexError, KeyError) as error:
        raise ValueError("the module is cut short") from error
    return None


class _Reader:
    """Bytes that are read from front to back."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def __bool__(self) -> bool:
        return self._position < len(self._content)

    def take(self, n_bytes: int) -> bytes:
        taken = self._content[self._position : self._position + n_bytes]
        if len(taken) < n_bytes:
            raise IndexError(n_bytes)
        self._position += n_bytes
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        """Read a number whose first byte says by its trailing zeros how many follow."""
        first = self.byte()
        if first == 0:
            return int.from_bytes(self.take(8), "little")
        n_more = (first & -first).bit_length() - 1
        return int.from_bytes(bytes([first]) + self.take(n_more), "little") >> (n_more + 1)

    def align(self, alignment: int) -> None:
        self.take(-self._position % alignment)


def _sections(module: bytes) -> dict[int, bytes]:
    if not module.startswith(_MAGIC):
        raise ValueError("it is no module in MLIR's binary form")
    reader = _Reader(module)
    reader.take(len(_MAGIC))
    version = reader.number()
    if version not in _VERSIONS:
        raise ValueError(f"it is in version {version} of MLIR's binary form")
    while reader.byte():  # who wrote it
        pass
    sections: dict[int, bytes] = {}
    while reader:
        kind, length = reader.byte(), reader.number()
        if kind & 0x80:
            reader.align(max(reader.number(), 1))
        if kind & 0x7F in sections:
            raise ValueError("a section of the module comes twice")
        sections[kind & 0x7F] = reader.take(length)
    return sections


def _strings(section: bytes) -> list[bytes]:
    reader = _Reader(section)
    # Lengths come from the last to the first, with the zero at each end.
    lengths = [reader.number() for _ in range(reader.number())][::-1]
    return [reader.take(length)[:-1] for length in lengths]


def _named_strings(attributes: bytes, offsets: bytes, strings: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the attributes that are strings, by number. Errors: ValueError for one that is written as text."""
    reader, records = _Reader(offsets), _Reader(attributes)
    n_attributes, _ = reader.number(), reader.number()
    number = 0
    while number < n_attributes:
        reader.number()  # the dialect
        for _ in range(reader.number()):
            size = reader.number()
            if not size & 1:
                raise ValueError("it holds an attribute as text")
            record = _Reader(records.take(size >> 1))
            if record and record.number() == _STRING_RECORD and record:
                index = record.number()
                # Of another dialect the number means something else.
                if index < len(strings):
                    yield number, strings[index]
            number += 1


def _rows(section: bytes) -> Iterator[list[int]]:
    reader = _Reader(section)
    for _ in range(reader.number()):
        row = _Reader(reader.take(reader.number()))
        numbers = []
        while row:
            numbers.append(row.number())
        yield numbers
