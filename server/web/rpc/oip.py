"""``inference.GRPCInferenceService``, predictions apart: what there is, and what can be done with it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from server.batching import Draining
from server.protocol.messages import message_class
from server.rights import AuditRecord
from server.store.errors import ModelNotReady, VersionNotLoaded
from server.web import oip_facts
from server.web.auditing import audited
from server.web.errors import NotOffered
from server.web.front import Front
from server.web.interfaces import Catalog, ResidentModel
from server.web.paths import version_number
from server.web.rpc.call import Call, Method, allow_call
from server.web.rpc.known_messages import KnownMessages
from server.web.rpc.predictions import Predictions
from server.web.rpc.reading import read_message, write_message
from server.web.scopes import ASK, MANAGE

__all__ = ["OipService"]


class OipService:
    """The service's methods over a catalog."""

    def __init__(self, front: Front, catalog: Catalog, predictions: Predictions) -> None:
        self._front = front
        self._catalog = catalog
        self.methods = {
            "ServerLive": Method(unary=self._server_live),
            "ServerReady": Method(unary=self._server_ready),
            "ModelReady": Method(unary=self._model_ready),
            "ServerMetadata": Method(unary=self._server_metadata),
            "ModelMetadata": Method(unary=self._model_metadata),
            "ModelInfer": Method(quick=predictions.infer, messages=KnownMessages.of_infer()),
            "ModelStreamInfer": Method(stream=predictions.stream_infer),
            "ModelConfig": Method(unary=self._model_config),
            "ModelStatistics": Method(unary=self._statistics),
            "RepositoryIndex": Method(unary=self._index),
            "RepositoryModelLoad": Method(unary=self._load),
            "RepositoryModelUnload": Method(unary=self._unload),
        }

    async def _server_live(self, _call: Call, _body: bytes) -> bytes:
        return write_message("inference.ServerLiveResponse", {"live": True})

    async def _server_ready(self, _call: Call, _body: bytes) -> bytes:
        return write_message("inference.ServerReadyResponse", {"ready": not self._catalog.readiness()})

    async def _model_ready(self, call: Call, body: bytes) -> bytes:
        try:
            self._asked(call, body)
        except (Draining, ModelNotReady, VersionNotLoaded):
            return write_message("inference.ModelReadyResponse", {"ready": False})
        return write_message("inference.ModelReadyResponse", {"ready": True})

    async def _server_metadata(self, _call: Call, _body: bytes) -> bytes:
        return write_message("inference.ServerMetadataResponse", oip_facts.server_metadata())

    async def _model_metadata(self, call: Call, body: bytes) -> bytes:
        metadata = oip_facts.model_metadata(self._asked(call, body))
        return write_message("inference.ModelMetadataResponse", metadata)

    async def _model_config(self, call: Call, body: bytes) -> bytes:
        config = oip_facts.model_config(self._asked(call, body))
        return write_message("inference.ModelConfigResponse", {"config": config})

    async def _statistics(self, call: Call, body: bytes) -> bytes:
        request = read_message("inference.ModelStatisticsRequest", body)
        if request.name:
            allow_call(call, request.name, ASK)
        statistics = oip_facts.statistics_of(
            self._catalog, request.name or None, _version(request.version), covers=call.grant.covers
        )
        return write_message("inference.ModelStatisticsResponse", statistics)

    async def _index(self, call: Call, body: bytes) -> bytes:
        request = read_message("inference.RepositoryIndexRequest", body)
        records = [record for record in self._catalog.models() if call.grant.covers(record.model)]
        models = oip_facts.repository_index(records, only_ready=request.ready)
        return write_message("inference.RepositoryIndexResponse", {"models": models})

    async def _load(self, call: Call, body: bytes) -> bytes:
        request = read_message("inference.RepositoryModelLoadRequest", body)
        allow_call(call, request.model_name, MANAGE)
        if request.parameters:
            raise NotOffered(
                "a model is loaded as it was built: send no 'parameters'; register another version with other options"
            )
        async with self._audited(call, "RepositoryModelLoad"):
            await self._catalog.load(request.model_name, by=call.grant.name)
        return message_class("inference.RepositoryModelLoadResponse")().SerializeToString()  # type: ignore[no-any-return]

    async def _unload(self, call: Call, body: bytes) -> bytes:
        request = read_message("inference.RepositoryModelUnloadRequest", body)
        allow_call(call, request.model_name, MANAGE)
        async with self._audited(call, "RepositoryModelUnload"):
            await self._catalog.unload(request.model_name, by=call.grant.name)
        return message_class("inference.RepositoryModelUnloadResponse")().SerializeToString()  # type: ignore[no-any-return]

    def _asked(self, call: Call, body: bytes) -> ResidentModel:
        """Return whom a request asks. Name and version are the first fields of each such request."""
        request = read_message("inference.ModelReadyRequest", body)
        allow_call(call, request.name, ASK)
        return self._catalog.resolve(request.name, _version(request.version))

    def _audited(self, call: Call, name: str) -> AbstractAsyncContextManager[None]:
        record = AuditRecord(
            who=call.grant.name,
            what=f"/inference.GRPCInferenceService/{name}",
            request_id=call.request_id,
            host=call.host,
            model=call.model,
        )
        return audited(self._front.gate.audit, record)


def _version(text: str) -> int | None:
    return version_number(text) if text else None
