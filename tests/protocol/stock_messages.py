"""Our protocol buffers beside those that stock clients have registered under the same names."""

from __future__ import annotations

from collections.abc import Collection

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from server.protocol.messages import file_descriptors, pool

__all__ = ["compared_with_stock_clients"]


def compared_with_stock_clients(packages: Collection[str]) -> int:
    """Assert that every field of ours is the same field of theirs; return how many messages were compared."""
    ours = [message for message in _messages() if message.file.package in packages]
    for message in ours:
        theirs = descriptor_pool.Default().FindMessageTypeByName(message.full_name)
        for number, field in message.fields_by_number.items():
            assert _described(field) == _described(theirs.fields_by_number[number]), f"{message.full_name}.{field.name}"
            if field.enum_type:
                known = {value.name: value.number for value in theirs.fields_by_number[number].enum_type.values}
                assert {value.name: value.number for value in field.enum_type.values}.items() <= known.items()
    return len(ours)


def _messages() -> list[Descriptor]:
    found: list[Descriptor] = []
    for file in file_descriptors().file:
        waiting = list(pool().FindFileByName(file.name).message_types_by_name.values())
        while waiting:
            found.append(waiting.pop())
            waiting += found[-1].nested_types
    return found


def _described(field: FieldDescriptor) -> tuple[object, ...]:
    kind = field.message_type or field.enum_type
    return field.name, field.type, field.is_repeated, kind and kind.full_name
