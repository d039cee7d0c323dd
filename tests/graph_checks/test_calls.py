"""Calls of functions: what a graph may not say of where and how they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from server.graph_checks import GraphRefused
from server.graph_checks.check import check_saved_model
from tests.graph_checks.saved import Change, save_graph


def _config(meta_graph: Any) -> None:
    config = tf.compat.v1.ConfigProto()
    config.cluster_def.job.add(name="worker").tasks[0] = "10.0.0.1:2222"
    _call(meta_graph).attr["config_proto"].s = config.SerializeToString()


def _optimizer(meta_graph: Any) -> None:
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.custom_optimizers.add(name="theirs")
    _call(meta_graph).attr["config_proto"].s = config.SerializeToString()


def _executor(meta_graph: Any) -> None:
    _call(meta_graph).attr["executor_type"].s = b"THEIRS"


def _missing(meta_graph: Any) -> None:
    _call(meta_graph).attr["f"].func.name = "gone"


def _left_to_the_caller(meta_graph: Any) -> None:
    _call(meta_graph).attr["executor_type"].placeholder = "T"


def _itself(meta_graph: Any) -> None:
    (function,) = meta_graph.graph_def.library.function
    function.node_def.add().CopyFrom(_call(meta_graph))
    function.node_def[-1].name = "again"


def calls(x: tf.Tensor) -> tf.Tensor:
    return tf.function(tf.tanh, autograph=False)(x)


def _call(meta_graph: Any) -> Any:
    return next(node for node in meta_graph.graph_def.node if node.op.endswith("PartitionedCall"))


CALLS: dict[str, tuple[Change, str]] = {
    "other machines": (_config, "cluster_def"),
    "an optimizer of theirs": (_optimizer, "custom_optimizers"),
    "an executor of theirs": (_executor, "executor"),
    "a function that is not there": (_missing, "'gone'"),
    "an attribute of the caller's": (_left_to_the_caller, "leaves its executor_type"),
    "a function that calls itself": (_itself, "calls itself"),
}


@pytest.mark.parametrize("what", CALLS)
def test_calls_say_nothing_of_where_and_how(what: str, tmp_path: Path) -> None:
    change, sentence = CALLS[what]
    with pytest.raises(GraphRefused, match=sentence):
        check_saved_model(save_graph(tmp_path / "model", calls, change=change))
