from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from server.engine._session import GraphSession
from server.engine.nesting import inter_op_threads, nesting_depth


def nested(x: tf.Tensor) -> tf.Tensor:
    """Branches in loops in branches, four levels deep."""
    if x > 0.0:
        while x < 100.0:
            if x < 50.0:
                for _ in tf.range(2):
                    if x < 10.0:
                        x = x * 3.0
                    else:
                        x = x * 2.0
            else:
                x = x + 25.0
    else:
        x = x - 1.0
    return x


@pytest.mark.parametrize("executor", ["single_threaded", "default"])
def test_nested_control_flow_does_not_wait_for_itself(tmp_path: Path, executor: str) -> None:
    function = tf.function(nested).get_concrete_function(tf.TensorSpec([], name="x"))
    tf.saved_model.save(tf.Module(), str(tmp_path), signatures={"f": function})
    assert inter_op_threads([function.graph.as_graph_def()]) >= 5
    session = GraphSession(tmp_path, executor=executor, intra_op_threads=1)
    call = session.callable("f", inputs=["x"], outputs=["output_0"])
    for value in (-1.0, 0.5, 30.0, 70.0, 200.0):
        assert call(np.float32(value))[0] == nested(tf.constant(value)).numpy()
    session.close()


def test_a_graph_without_functions_has_no_depth() -> None:
    graph = tf.Graph()
    with graph.as_default():
        tf.constant(1.0)
    assert nesting_depth(graph.as_graph_def()) == 0
