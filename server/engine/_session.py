"""The one place that runs graphs through TensorFlow's session, and so the one that needs its private interface.

A TF2 function call costs about 250 us before any kernel runs; a session's prepared callable with the
single-threaded executor costs 12 us (measured: 64-256-256-10 MLP at one row, TensorFlow 2.21, 2 cores). The public
``Session.make_callable`` with a feed list takes a generic path that fails on tensors of TF2 graphs, so the
callable is made from its options by tensor names. ``tests/engine/test_session_pin.py`` pins what is used here.

Closing a session frees its variables and its XLA executables; functions that TF2 has loaded are never freed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, saved_model_pb2
from tensorflow.python.eager.polymorphic_function import tracing_compilation
from tensorflow.python.framework import ops

from server.engine.nesting import inter_op_threads

__all__ = ["GraphCallable", "GraphSession", "traced_s"]

#: Takes the inputs in the order that was asked for, returns the outputs in theirs.
GraphCallable = Callable[..., list[np.ndarray]]

_EXECUTORS = {"single_threaded": "SINGLE_THREADED_EXECUTOR", "default": ""}


def traced_s() -> float:
    """Return how long functions have been traced in this process, seconds, by TensorFlow's own counter."""
    return float(tracing_compilation._graph_building_time_counter.get_cell().value()) * 1e-6


class GraphSession:
    """A SavedModel in a session of its own: its variables, loaded once, and its signatures as callables.

    ``executor`` is ``single_threaded`` (ops run one after the other in the calling thread) or ``default``;
    ``intra_op_threads`` bounds the threads of one kernel; ``device`` places the ops that name none, and None leaves
    that to TensorFlow.
    Errors: ValueError for an unknown executor; OSError and ValueError for a directory that is no SavedModel; what
        TensorFlow raises for one that it can't load.
    """

    def __init__(self, saved_model: Path, *, executor: str, intra_op_threads: int, device: str | None = None) -> None:
        if executor not in _EXECUTORS:
            raise ValueError(f"executor: expected one of {sorted(_EXECUTORS)}, got {executor!r}")
        config = config_pb2.ConfigProto(
            intra_op_parallelism_threads=intra_op_threads,
            # The single-threaded executor runs ops in the calling thread; the pool is for functions that they call.
            inter_op_parallelism_threads=inter_op_threads(_graph_defs(saved_model)),
            use_per_session_threads=True,
        )
        config.gpu_options.allow_growth = True
        if _EXECUTORS[executor]:
            config.experimental.executor_type = _EXECUTORS[executor]
        self._graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=self._graph, config=config)
        try:
            with self._graph.as_default(), tf.device(device):
                self._meta_graph: meta_graph_pb2.MetaGraphDef = tf.compat.v1.saved_model.load(
                    self._session, [tf.saved_model.SERVING], str(saved_model)
                )
        except BaseException:
            self._session.close()
            raise

    def callable(self, signature: str, *, inputs: Sequence[str], outputs: Sequence[str]) -> GraphCallable:
        """Prepare one signature.

        Shapes: as the signature's; arrays must be C-contiguous and of its dtype.
        Errors: KeyError if the signature, an input or an output is not there.
        """
        if signature not in self._meta_graph.signature_def:
            raise KeyError(f"signature {signature!r} is not in the SavedModel")
        definition = self._meta_graph.signature_def[signature]
        options = config_pb2.CallableOptions()
        options.feed.extend(_tensor_name(definition.inputs, name, signature) for name in inputs)
        options.fetch.extend(_tensor_name(definition.outputs, name, signature) for name in outputs)
        prepared: GraphCallable = self._session._make_callable_from_options(options)
        return prepared

    def close(self) -> None:
        """Free the session, its variables and its compiled graphs. Callables must not be called any more."""
        self._session.close()
        # A graph and its operations refer to each other, and what serves is frozen: no collection would ever find them.
        ops.dismantle_graph(self._graph)
        del self._graph


def _graph_defs(saved_model: Path) -> list[Any]:
    """Return the graphs of a SavedModel. Errors: OSError; ValueError if its file is damaged."""
    content = (saved_model / "saved_model.pb").read_bytes()
    try:
        parsed = saved_model_pb2.SavedModel.FromString(content)
    except Exception as error:  # protobuf's DecodeError, which only protobuf itself exports
        raise ValueError(f"saved_model.pb is damaged: {error}") from error
    return [meta_graph.graph_def for meta_graph in parsed.meta_graphs]


def _tensor_name(tensors: object, name: str, signature: str) -> str:
    if name not in tensors:  # type: ignore[operator]
        raise KeyError(f"signature {signature!r} has no tensor {name!r}")
    return str(tensors[name].name)  # type: ignore[index]
