"""What the Open Inference Protocol tells of the server and its models, as plain values for any transport.

The first dimension of a tensor counts examples, so metadata says -1 there; a configuration leaves it out, as one with a
``max_batch_size`` does. Source: the protocol's specification (KServe), and Triton's extensions of it for configuration,
statistics and the repository.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any

from server.protocol.oip_datatypes import datatype_of
from server.protocol.tensor_rows import batch_shape
from server.signature import ModelSignature, TensorSignature
from server.statistics import BatchTimes, EntryStatistics
from server.store.records import State, VersionRecord
from server.version_life import why_not
from server.web.interfaces import Catalog, ResidentModel, ServedModel

__all__ = [
    "EXTENSIONS",
    "PLATFORM",
    "index_entry",
    "model_config",
    "model_metadata",
    "model_statistics",
    "repository_index",
    "server_metadata",
    "statistics_of",
]

PLATFORM = "tensorflow_rowwise"

#: Those of Triton's that are offered, by its names for them.
EXTENSIONS = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "schedule_policy",
    "statistics",
)

#: States of a repository's index. What has no state of its own there is UNAVAILABLE, and the reason says why.
_INDEX_STATES = {
    State.AVAILABLE: "READY",
    State.LOADING: "LOADING",
    State.UNLOADING: "UNLOADING",
}


def server_metadata() -> dict[str, Any]:
    """Return name, version and extensions of the server."""
    return {"name": "rowwise", "version": version("rowwise"), "extensions": list(EXTENSIONS)}


def model_metadata(served: ServedModel) -> dict[str, Any]:
    """Return names, datatypes and shapes of a version's inputs and outputs; -1 is any size.

    ``parameters`` of an input say what else there is to know: ``optional``, and ``max_shape`` where sizes vary.
    """
    signature = served.signature
    return {
        "name": served.name,
        "versions": [str(served.version)],
        "platform": PLATFORM,
        "inputs": [_metadata_of(tensor, signature) for tensor in signature.inputs],
        "outputs": [_metadata_of(tensor, signature) for tensor in signature.outputs],
    }


def model_config(served: ResidentModel) -> dict[str, Any]:
    """Return a version's configuration: a ``ModelConfig`` in protobuf's JSON.

    ``max_batch_size`` is the largest batch that it runs. A request may have more rows: they run in several.
    """
    signature, sizes = served.signature, list(served.batch_sizes)
    return {
        "name": served.name,
        "platform": PLATFORM,
        "backend": "rowwise",
        "version_policy": {"specific": {"versions": [served.version]}},
        "max_batch_size": sizes[-1],
        "input": [
            {**_config_of(tensor), "optional": True} if tensor.is_optional else _config_of(tensor)
            for tensor in signature.inputs
        ],
        "output": [_config_of(tensor) for tensor in signature.outputs],
        "dynamic_batching": {"preferred_batch_size": sizes, "max_queue_delay_microseconds": 0},
    }


def statistics_of(
    catalog: Catalog, name: str | None = None, number: int | None = None, *, covers: Callable[[str], bool]
) -> dict[str, Any]:
    """Return the statistics of one version, of a model's or of all that serve and that ``covers`` lets be seen.

    Errors: those of ``Catalog.resolve``, where there is a name.
    """
    if name is None:
        served = [each.model for each in catalog.serving() if covers(each.model.name)]
    else:
        served = [catalog.resolve(name, number)]
    return {"model_stats": [model_statistics(model) for model in served]}


def model_statistics(served: ResidentModel) -> dict[str, Any]:
    """Return how a version's predictions went since it was loaded. Units: nanoseconds; ``last_inference`` ms."""
    counted: EntryStatistics = served.statistics
    n_succeeded = counted.n_succeeded
    return {
        "name": served.name,
        "version": str(served.version),
        "last_inference": int(counted.last_ended_s * 1e3),
        "inference_count": counted.n_rows,
        "execution_count": counted.n_batches,
        "inference_stats": {
            "success": _duration(n_succeeded, counted.succeeded_s),
            "fail": _duration(counted.n_failed, counted.failed_s),
            "queue": _duration(n_succeeded, counted.queued_s),
            **_steps(counted.in_batches),
            "cache_hit": _duration(0, 0.0),
            "cache_miss": _duration(0, 0.0),
        },
        "response_stats": {},
        "batch_stats": [{"batch_size": n_rows, **_steps(times)} for n_rows, times in sorted(counted.by_rows.items())],
        "memory_usage": [],
    }


def repository_index(records: Iterable[VersionRecord], *, only_ready: bool = False) -> list[dict[str, str]]:
    """Return an entry for each version of each model."""
    entries = [index_entry(record) for record in records]
    return [entry for entry in entries if entry["state"] == "READY"] if only_ready else entries


def index_entry(record: VersionRecord) -> dict[str, str]:
    """Return one entry of a repository's index: name, version, state and, unless it is ready, the reason."""
    state = _INDEX_STATES.get(record.state, "UNAVAILABLE")
    return {
        "name": record.model,
        "version": str(record.version),
        "state": state,
        "reason": "" if state == "READY" else why_not(record),
    }


def _metadata_of(tensor: TensorSignature, signature: ModelSignature) -> dict[str, Any]:
    more: dict[str, Any] = {"optional": True} if tensor.is_optional else {}
    longest = {axis.name: axis.max for axis in signature.axes}
    if not tensor.is_fixed and all(isinstance(dim, int) or dim in longest for dim in tensor.shape):
        more["max_shape"] = [-1, *(dim if isinstance(dim, int) else longest[dim] for dim in tensor.shape)]
    told = {"name": tensor.name, "datatype": datatype_of(tensor.dtype), "shape": batch_shape(tensor)}
    return {**told, "parameters": more} if more else told


def _config_of(tensor: TensorSignature) -> dict[str, Any]:
    datatype = datatype_of(tensor.dtype)
    return {
        "name": tensor.name,
        "data_type": "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}",
        "dims": batch_shape(tensor)[1:],
    }


def _steps(times: BatchTimes) -> dict[str, dict[str, int]]:
    return {
        "compute_input": _duration(times.n, times.staging_s),
        "compute_infer": _duration(times.n, times.graph_s),
        "compute_output": _duration(times.n, times.unstaging_s),
    }


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": int(seconds * 1e9)}
