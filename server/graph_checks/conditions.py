"""What allowed ops are held to besides: an attribute can make an op read a file, or memory that nobody wrote.

Each condition takes a node and returns what is wrong with it, as the end of a sentence, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import tensorflow as tf

from server.graph_checks.xla_modules import leaves_by

__all__ = ["CONDITIONS", "Condition"]

Condition = Callable[[Any], str | None]

_EXECUTORS = ("", "DEFAULT", "SINGLE_THREADED_EXECUTOR")
#: Of a call's configuration: what chooses other machines, processes or code.
_FOREIGN_CONFIG = ("cluster_def", "device_filters", "rpc_options", "session_inter_op_thread_pool")
_FOREIGN_REWRITES = (
    "custom_optimizers",
    "inter_optimizer_verifier_config",
    "optimizers",
    "post_optimization_verifier_config",
)


def _bytes(node: Any, name: str) -> bytes:
    return bytes(node.attr[name].s) if name in node.attr else b""


def _descriptor_source(node: Any) -> str | None:
    source = _bytes(node, "descriptor_source")
    if source in (b"", b"local://") or source.startswith(b"bytes://"):
        return None
    return "reads its descriptors from a file; give them as bytes://"


def _vocabulary(node: Any) -> str | None:
    return "reads its vocabulary from a file; give it unigrams" if _bytes(node, "vocab_file") else None


def _initialized(node: Any) -> str | None:
    if "init" in node.attr and node.attr["init"].b:
        return None
    return "hands out memory that nobody has written; use tf.zeros"


def _plain(attribute: str) -> Condition:
    handles = (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)

    def condition(node: Any) -> str | None:
        return "makes a handle or a variant of bytes, or bytes of one" if node.attr[attribute].type in handles else None

    return condition


def _own_container(node: Any) -> str | None:
    if _bytes(node, "container"):
        return "is in a container that other sessions could share; save it without tf.container"
    return None


def _call(node: Any) -> str | None:
    if _bytes(node, "executor_type").decode("utf-8", "replace") not in _EXECUTORS:
        return "asks for an executor that is not the runtime's own"
    if _bytes(node, "config"):
        return "has a configuration of its own; save the model again with tf.saved_model.save"
    return _config(_bytes(node, "config_proto"))


@cache
def _config(content: bytes) -> str | None:
    if not content:
        return None
    try:
        config = tf.compat.v1.ConfigProto.FromString(content)
    except Exception:  # noqa: BLE001 - protobuf's DecodeError, which only protobuf itself exports
        return "has a configuration that can't be read"
    rewrites = config.graph_options.rewrite_options
    found = [name for name, _ in config.ListFields() if name.name in _FOREIGN_CONFIG]
    found += [name for name, _ in rewrites.ListFields() if name.name in _FOREIGN_REWRITES]
    found += [name for name, _ in config.experimental.ListFields() if "coll" in name.name or "coord" in name.name]
    if found:
        return f"has a configuration with {found[0].name}, which chooses machines or code; save the model without it"
    return None


def _module(node: Any) -> str | None:
    try:
        leaving = leaves_by(_bytes(node, "module"))
    except ValueError as error:
        return f"holds what is no module of XLA as jax2tf writes it ({error}); export the function again with jax2tf"
    if leaving is None:
        return None
    return (
        f"holds a module with {leaving}, which is code or data outside of it: export a function without callbacks and "
        "without linear algebra that JAX hands to LAPACK"
    )


#: Ops whose variable or table others find by its name.
_NAMED = (
    "HashTable",
    "HashTableV2",
    "MutableDenseHashTable",
    "MutableDenseHashTableV2",
    "MutableHashTable",
    "MutableHashTableOfTensors",
    "MutableHashTableOfTensorsV2",
    "MutableHashTableV2",
    "VarHandleOp",
    "Variable",
    "VariableV2",
)
#: By op. Attributes that are named here may not be left to the caller of a function either.
CONDITIONS: Mapping[str, tuple[tuple[str, ...], Condition]] = {
    "DecodeProtoV2": (("descriptor_source",), _descriptor_source),
    "Empty": (("init",), _initialized),
    "EncodeProto": (("descriptor_source",), _descriptor_source),
    "FixedUnigramCandidateSampler": (("vocab_file",), _vocabulary),
    "ParseTensor": (("out_type",), _plain("out_type")),
    "PartitionedCall": (("config", "config_proto", "executor_type"), _call),
    "SerializeTensor": (("T",), _plain("T")),
    "StatefulPartitionedCall": (("config", "config_proto", "executor_type"), _call),
    "XlaCallModule": (("module",), _module),
    **dict.fromkeys(_NAMED, (("container",), _own_container)),
}
