"""``grpc.reflection``: tells tools such as grpcurl which services there are, and their messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Any

from server.protocol.messages import message_class, pool
from server.web.rpc.call import Call, Method
from server.web.rpc.codes import Code
from server.web.rpc.reading import read_message

__all__ = ["ReflectionService"]


class ReflectionService:
    """One version of the service, ``v1`` or ``v1alpha``: they differ by name alone."""

    def __init__(self, version: str, services: Collection[str]) -> None:
        self._package = f"grpc.reflection.{version}"
        self._services = services
        self.methods = {"ServerReflectionInfo": Method(stream=self._info)}

    async def _info(self, _call: Call, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for body in requests:
            request = read_message(f"{self._package}.ServerReflectionRequest", body)
            response = message_class(f"{self._package}.ServerReflectionResponse")(valid_host=request.host)
            response.original_request.CopyFrom(request)
            self._answer(request, response)
            written: bytes = response.SerializeToString()
            yield written

    def _answer(self, request: Any, response: Any) -> None:
        asked = request.WhichOneof("message_request")
        try:
            if asked == "list_services":
                for service in sorted(self._services):
                    response.list_services_response.service.add(name=service)
            elif asked == "file_by_filename":
                _add_files(response, pool().FindFileByName(request.file_by_filename))
            elif asked == "file_containing_symbol":
                _add_files(response, pool().FindFileContainingSymbol(request.file_containing_symbol))
            elif asked == "all_extension_numbers_of_type":
                name = request.all_extension_numbers_of_type
                pool().FindMessageTypeByName(name)
                response.all_extension_numbers_response.base_type_name = name  # proto3 has no extensions
            else:
                raise KeyError(asked)
        except KeyError:
            response.error_response.error_code = Code.NOT_FOUND
            response.error_response.error_message = f"{asked or 'nothing'}: not found"


def _add_files(response: Any, file: Any) -> None:
    """Add a file and all that it imports, each once."""
    waiting, seen = [file], set()
    while waiting:
        each = waiting.pop()
        if each.name not in seen:
            seen.add(each.name)
            response.file_descriptor_response.file_descriptor_proto.append(each.serialized_pb)
            waiting += each.dependencies
