"""TensorFlow Serving's questions about a model: its versions' states, and its signature."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from server.signature import ModelSignature, TensorSignature
from server.store.records import State, VersionRecord
from server.web.interfaces import Catalog
from server.web.paths import version_number
from server.web.predict import labelled_version

__all__ = ["model_metadata", "model_status_router", "signature_def", "version_status"]

#: Our states in the words of tensorflow_serving/apis/get_model_status.proto.
_STATES = {
    State.BUILDING: "START",
    State.BUILT: "START",
    State.LOADING: "LOADING",
    State.AVAILABLE: "AVAILABLE",
    State.UNLOADING: "UNLOADING",
    State.UNLOADED: "END",
    State.FAILED: "END",
}

#: Names of tensorflow/core/framework/types.proto that aren't ours in capitals.
_DATA_TYPES = {"float16": "DT_HALF", "float32": "DT_FLOAT", "float64": "DT_DOUBLE"}


def model_status_router(catalog: Catalog) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1/models", tags=["models"])

    @router.get("/{model}", summary="States of all versions")
    async def status(model: str) -> dict[str, Any]:
        newest_first = sorted(catalog.versions(model), key=lambda record: record.version, reverse=True)
        return {"model_version_status": [version_status(record) for record in newest_first]}

    @router.get("/{model}/versions/{version}", summary="State of a version")
    async def one_status(model: str, version: str) -> dict[str, Any]:
        return {"model_version_status": [version_status(catalog.version(model, version_number(version)))]}

    @router.get("/{model}/labels/{label}", summary="State of a labelled version")
    async def labelled_status(model: str, label: str) -> dict[str, Any]:
        record = catalog.version(model, labelled_version(catalog, model, label))
        return {"model_version_status": [version_status(record)]}

    @router.get("/{model}/metadata", summary="Signature of the active version")
    async def metadata(model: str) -> dict[str, Any]:
        return model_metadata(catalog, model, None)

    @router.get("/{model}/versions/{version}/metadata", summary="Signature of a version")
    async def one_metadata(model: str, version: str) -> dict[str, Any]:
        return model_metadata(catalog, model, version_number(version))

    @router.get("/{model}/labels/{label}/metadata", summary="Signature of a labelled version")
    async def labelled_metadata(model: str, label: str) -> dict[str, Any]:
        return model_metadata(catalog, model, labelled_version(catalog, model, label))

    return router


def version_status(record: VersionRecord) -> dict[str, Any]:
    """Return one entry of ``model_version_status``. Source: TensorFlow Serving's ModelVersionStatus."""
    failed = record.state is State.FAILED
    return {
        "version": str(record.version),
        "state": _STATES[record.state],
        "status": {
            "error_code": "FAILED_PRECONDITION" if failed else "OK",
            "error_message": record.reason if failed else "",
        },
    }


def signature_def(signature: ModelSignature, *, method: str = "tensorflow/serving/predict") -> dict[str, Any]:
    """Return a SignatureDef in protobuf's JSON. The first dimension counts examples, -1 is any size."""
    return {
        "inputs": {tensor.name: _tensor_info(tensor) for tensor in signature.inputs},
        "outputs": {tensor.name: _tensor_info(tensor) for tensor in signature.outputs},
        "method_name": method,
    }


def model_metadata(catalog: Catalog, model: str, version: int | None) -> dict[str, Any]:
    """Return what TensorFlow Serving tells of a version. Errors: those of ``Catalog.resolve``."""
    served = catalog.resolve(model, version)
    definitions = {"serving_default": signature_def(served.signature)}
    for each in served.derivatives:
        definitions[each.model.entry] = signature_def(each.model.signature, method=f"rowwise/{each.kind}")
    listed = [
        {"name": each.model.entry, "kind": each.kind, "output": each.output, "wrt": list(each.wrt)}
        for each in served.derivatives
    ]
    return {
        "model_spec": {"name": served.name, "signature_name": "", "version": str(served.version)},
        "metadata": {
            "signature_def": {"signature_def": definitions},
            **_optional_inputs(served.signature),
            **({"derivatives": listed} if listed else {}),
        },
    }


def _optional_inputs(signature: ModelSignature) -> dict[str, Any]:
    """Return what a SignatureDef has no field for: inputs that callers may leave out."""
    names = [tensor.name for tensor in signature.inputs if tensor.is_optional]
    return {"optional_inputs": names} if names else {}


def _tensor_info(tensor: TensorSignature) -> dict[str, Any]:
    sizes = [-1, *(dim if isinstance(dim, int) else -1 for dim in tensor.shape)]
    return {
        "name": f"{tensor.name}:0",
        "dtype": _DATA_TYPES.get(tensor.dtype, f"DT_{tensor.dtype.upper()}"),
        "tensor_shape": {"dim": [{"size": str(size), "name": ""} for size in sizes], "unknown_rank": False},
    }
