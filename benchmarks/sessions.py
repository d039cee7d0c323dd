"""Graphs of one batch, run through the kind of session that the server uses."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["callables_of", "with_xla"]


def with_xla(graph: Any) -> Any:
    """Return a concrete function that XLA must compile, as the builder makes it."""
    import tensorflow as tf

    def compiled(**inputs: Any) -> Any:
        return graph(**inputs)

    _, specs = graph.structured_input_signature
    return tf.function(compiled, jit_compile=True, autograph=False).get_concrete_function(**specs)


@contextmanager
def callables_of(
    graphs: Mapping[str, Any], *, inputs: Sequence[str], outputs: Sequence[str], kept: Sequence[Any] = ()
) -> Iterator[dict[str, Callable[..., list[np.ndarray]]]]:
    """Save concrete functions and give each as a session's callable, with the executor of one thread.

    ``kept`` are owners of tables and variables beyond those that the graphs capture.
    """
    import tensorflow as tf

    from server.engine._session import GraphSession

    with tempfile.TemporaryDirectory() as directory:
        root = tf.Module()
        root.variables_of_all = [variable for graph in graphs.values() for variable in graph.graph.variables]
        root.kept = list(kept)
        keys = {name: f"graph_{index}" for index, name in enumerate(graphs)}
        tf.saved_model.save(root, directory, signatures={keys[name]: graph for name, graph in graphs.items()})
        session = GraphSession(Path(directory), executor="single_threaded", intra_op_threads=1)
        try:
            yield {name: session.callable(key, inputs=inputs, outputs=outputs) for name, key in keys.items()}
        finally:
            session.close()
