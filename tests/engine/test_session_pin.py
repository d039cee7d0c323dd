"""What ``server/engine/_session.py`` relies on in TensorFlow's session, each by its name."""

from __future__ import annotations

import gc
import inspect
import weakref
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from server.engine._session import GraphSession, traced_s


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved")
    root = tf.Module()
    root.w = tf.Variable(3.0)

    @tf.function
    def function(b: tf.Tensor, a: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"sum": a + b * root.w, "a": a}

    tf.saved_model.save(
        root,
        str(path),
        signatures={
            "call": function.get_concrete_function(
                b=tf.TensorSpec([2], tf.float32, name="b"), a=tf.TensorSpec([2], tf.float32, name="a")
            )
        },
    )
    return path


def test_private_names_exist() -> None:
    session = tf.compat.v1.Session
    assert "callable_options" in inspect.signature(session._make_callable_from_options).parameters
    assert {"feed", "fetch"} <= set(config_pb2.CallableOptions.DESCRIPTOR.fields_by_name)
    assert "executor_type" in config_pb2.ConfigProto.Experimental.DESCRIPTOR.fields_by_name
    assert "use_per_session_threads" in config_pb2.ConfigProto.DESCRIPTOR.fields_by_name


@pytest.mark.parametrize("executor", ["single_threaded", "default"])
def test_callable_takes_and_gives_in_the_order_that_was_asked_for(saved_model: Path, executor: str) -> None:
    session = GraphSession(saved_model, executor=executor, intra_op_threads=1)
    call = session.callable("call", inputs=["a", "b"], outputs=["sum", "a"])
    one, two = np.ones(2, np.float32), np.full(2, 2.0, np.float32)
    for _ in range(3):
        outputs = call(one, two)
        assert [output.tolist() for output in outputs] == [[7.0, 7.0], [1.0, 1.0]]
    session.close()


def test_wrong_feeds_raise_and_do_not_crash(saved_model: Path) -> None:
    session = GraphSession(saved_model, executor="single_threaded", intra_op_threads=1)
    call = session.callable("call", inputs=["a", "b"], outputs=["sum"])
    one = np.ones(2, np.float32)
    for feeds in ((one,), (one, one, one), (one, np.ones(2, np.float64)), (one, np.ones(3, np.float32))):
        with pytest.raises((ValueError, TypeError, tf.errors.OpError)):
            call(*feeds)
    assert call(one, one)[0].tolist() == [4.0, 4.0]
    session.close()


def test_what_is_not_there_is_named(saved_model: Path, tmp_path: Path) -> None:
    session = GraphSession(saved_model, executor="single_threaded", intra_op_threads=1)
    with pytest.raises(KeyError, match="signature 'other' is not in the SavedModel"):
        session.callable("other", inputs=[], outputs=[])
    with pytest.raises(KeyError, match="signature 'call' has no tensor 'z'"):
        session.callable("call", inputs=["z"], outputs=[])
    session.close()
    with pytest.raises(ValueError, match="executor: expected one of"):
        GraphSession(saved_model, executor="fast", intra_op_threads=1)
    with pytest.raises(OSError, match=r"saved_model\.pb"):
        GraphSession(tmp_path / "nothing", executor="default", intra_op_threads=1)


def test_tensorflow_counts_how_long_functions_are_traced() -> None:
    before = traced_s()
    tf.function(lambda value: value + 1).get_concrete_function(tf.TensorSpec([], tf.float32))
    assert traced_s() > before


def test_a_closed_session_keeps_no_operation_that_a_frozen_collector_would_never_find(saved_model: Path) -> None:
    session = GraphSession(saved_model, executor="default", intra_op_threads=1)
    left = [weakref.ref(operation) for operation in session._graph.get_operations()]
    assert len(left) > 3
    gc.collect()
    gc.freeze()
    try:
        session.close()
        # The last one that was made is held by TensorFlow until there is another.
        assert sum(operation() is not None for operation in left) <= 1
    finally:
        gc.unfreeze()
