"""``tensorflow.serving.PredictionService`` and ``ModelService``, predictions apart."""

from __future__ import annotations

from typing import Any

from server.protocol import MalformedRequest
from server.protocol.messages import message_class
from server.protocol.tfs_proto import read_model_spec
from server.web.interfaces import Catalog
from server.web.model_status import model_metadata, version_status
from server.web.paths import version_number
from server.web.predict import labelled_version
from server.web.rpc.call import Call, Method, allow_call, not_offered
from server.web.rpc.known_messages import KnownMessages
from server.web.rpc.predictions import Predictions
from server.web.rpc.reading import read_message, write_message
from server.web.scopes import ASK

__all__ = ["TfsServices"]

_NO_EXAMPLES = "it takes tf.Example protos, which this server does not read; use 'Predict', which takes tensors"
_NO_RELOADING = "models are registered and switched over HTTP (/v1/models), not by a configuration"


class TfsServices:
    """The services' methods over a catalog."""

    def __init__(self, catalog: Catalog, predictions: Predictions) -> None:
        self._catalog = catalog
        self.prediction_methods = {
            "Predict": Method(quick=predictions.predict, messages=KnownMessages.of_predict()),
            "GetModelMetadata": Method(unary=self._metadata),
            **{name: not_offered(f"{name}: {_NO_EXAMPLES}") for name in ("Classify", "Regress", "MultiInference")},
        }
        self.model_methods = {
            "GetModelStatus": Method(unary=self._status),
            "HandleReloadConfigRequest": not_offered(f"HandleReloadConfigRequest: {_NO_RELOADING}"),
        }

    async def _metadata(self, call: Call, body: bytes) -> bytes:
        request = read_message("tensorflow.serving.GetModelMetadataRequest", body)
        name, version = self._asked(call, request.model_spec)
        for field in request.metadata_field:
            if field != "signature_def":
                raise MalformedRequest(f"metadata_field {field[:40]!r} is unknown; ask for 'signature_def'")
        told = model_metadata(self._catalog, name, version)
        response = message_class("tensorflow.serving.GetModelMetadataResponse")()
        response.model_spec.name = name
        response.model_spec.version.value = int(told["model_spec"]["version"])
        packed = response.metadata["signature_def"]
        packed.type_url = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
        packed.value = write_message("tensorflow.serving.SignatureDefMap", told["metadata"]["signature_def"])
        written: bytes = response.SerializeToString()
        return written

    async def _status(self, call: Call, body: bytes) -> bytes:
        request = read_message("tensorflow.serving.GetModelStatusRequest", body)
        name, version = self._asked(call, request.model_spec)
        if version is None:
            records = sorted(self._catalog.versions(name), key=lambda record: record.version, reverse=True)
        else:
            records = [self._catalog.version(name, version)]
        states = [version_status(record) for record in records]
        return write_message("tensorflow.serving.GetModelStatusResponse", {"model_version_status": states})

    def _asked(self, call: Call, spec: Any) -> tuple[str, int | None]:
        """Return name and version that a ModelSpec means. Errors: not found; MalformedRequest."""
        name, version, label = read_model_spec(spec)
        allow_call(call, name, ASK)
        if label is not None:
            return name, labelled_version(self._catalog, name, label)
        return name, None if version is None else version_number(version)
