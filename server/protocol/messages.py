"""Classes of the protocol buffers in ``protos``, by their full names.

They live in a descriptor pool of their own: TensorFlow, tritonclient and tensorflow-serving-api define messages of the
same names, and one pool takes a name once. Nothing is generated but the descriptors, which no release of protobuf
outdates as it does generated Python: ``make protos`` writes them, and a test keeps them current.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

__all__ = ["enum_number", "file_descriptors", "message_class", "pool"]


@cache
def file_descriptors() -> Any:
    """Return the compiled set of files, each after those that it imports."""
    return FileDescriptorSet.FromString(files("server.protocol").joinpath("protos", "compiled.binpb").read_bytes())


@cache
def pool() -> DescriptorPool:
    """Return the pool that holds them and nothing else."""
    made = DescriptorPool()
    for file in file_descriptors().file:
        made.AddSerializedFile(file.SerializeToString())
    return made


@cache
def message_class(full_name: str) -> Any:
    """Return the class of a message. Errors: KeyError."""
    return GetMessageClass(pool().FindMessageTypeByName(full_name))


@cache
def enum_number(full_name: str, value: str) -> int:
    """Return the number of an enum's value. Errors: KeyError."""
    number: int = pool().FindEnumTypeByName(full_name).values_by_name[value].number
    return number
