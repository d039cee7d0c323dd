"""Graphs that are small on disk and large in memory, and lists of variables that say what is not so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from server.graph_checks import GraphDamaged, GraphLimits, GraphTooLarge
from server.graph_checks.check import check_saved_model
from tests.graph_checks.saved import TEXT, VECTOR, save_graph

N_VARIABLES = 40
#: So many that the largest variable is larger than the list of objects that lies beside them.
N_COLUMNS = 100


def constant(meta_graph: Any) -> Any:
    return next(node for node in meta_graph.graph_def.node if node.op == "Const").attr["value"].tensor


def check(tmp_path: Path, change: Callable[[Any], None], **limits: int) -> None:
    model = save_graph(tmp_path / "model", lambda x: x + tf.constant([1.0, 2.0, 3.0]), change=change)
    check_saved_model(model, limits=GraphLimits(**limits))


def shaped(*dims: int, dtype: tf.DType = tf.float32, **values: Any) -> Callable[[Any], None]:
    def change(meta_graph: Any) -> None:
        tensor = constant(meta_graph)
        tensor.Clear()
        tensor.dtype = dtype.as_datatype_enum
        for dim in dims:
            tensor.tensor_shape.dim.add(size=dim)
        for name, content in values.items():
            getattr(tensor, name).extend(content)

    return change


def test_a_constant_that_repeats_one_value_is_as_large_as_its_shape(tmp_path: Path) -> None:
    with pytest.raises(GraphTooLarge, match="max_constant_bytes"):
        check(tmp_path, shaped(2**20, 2**20, float_val=[1.0]))
    with pytest.raises(GraphTooLarge, match="max_filled_bytes"):
        check(tmp_path, shaped(2**27, float_val=[1.0]))
    with pytest.raises(GraphTooLarge, match="max_constant_bytes"):
        check(tmp_path, shaped(*[2] * 62, dtype=tf.int8, int_val=[1]))
    check(tmp_path, shaped(2**20, float_val=[1.0]))


def test_a_string_that_is_repeated_counts_each_time(tmp_path: Path) -> None:
    with pytest.raises(GraphTooLarge, match="max_constant_bytes"):
        check(tmp_path, shaped(2**20, dtype=tf.string, string_val=[b"x" * 10_000]))
    with pytest.raises(GraphTooLarge, match="max_constant_bytes"):
        check(tmp_path, shaped(2**30, dtype=tf.string))


def test_many_constants_count_together(tmp_path: Path) -> None:
    def change(meta_graph: Any) -> None:
        shaped(2**10, float_val=[1.0])(meta_graph)
        node = next(node for node in meta_graph.graph_def.node if node.op == "Const")
        for number in range(100):
            copy = meta_graph.graph_def.node.add()
            copy.CopyFrom(node)
            copy.name = f"another_{number}"

    with pytest.raises(GraphTooLarge, match="max_constants_bytes"):
        check(tmp_path, change, max_constants_bytes=100 * 2**12)
    with pytest.raises(GraphTooLarge, match="max_filled_bytes"):
        check(tmp_path, change, max_filled_bytes=90 * 2**12)
    check(tmp_path, change)


def test_a_shape_that_is_none_is_damaged(tmp_path: Path) -> None:
    def unknown(meta_graph: Any) -> None:
        constant(meta_graph).tensor_shape.unknown_rank = True

    def without(meta_graph: Any) -> None:
        next(node for node in meta_graph.graph_def.node if node.op == "Const").attr["value"].Clear()

    for change in (shaped(-1), unknown, without):
        with pytest.raises(GraphDamaged):
            check(tmp_path, change)


def chained(n_functions: int, n_calls: int) -> Callable[[Any], None]:
    """Functions that each call the next one ``n_calls`` times; TensorFlow itself would take for ever to trace them."""

    def change(meta_graph: Any) -> None:
        call = next(node for node in meta_graph.graph_def.node if node.op.endswith("PartitionedCall"))
        (last,) = meta_graph.graph_def.library.function
        for number in range(n_functions):
            function = meta_graph.graph_def.library.function.add()
            function.signature.name = f"calls_{number}"
            for again in range(n_calls):
                node = function.node_def.add()
                node.CopyFrom(call)
                node.name = f"call_{again}"
                node.attr["f"].func.name = f"calls_{number - 1}" if number else last.signature.name
        call.attr["f"].func.name = f"calls_{n_functions - 1}"

    return change


def calls(x: tf.Tensor) -> tf.Tensor:
    called: tf.Tensor = tf.function(tf.tanh, autograph=False)(x)
    return called


def test_functions_that_multiply_when_they_are_inlined_are_refused(tmp_path: Path) -> None:
    model = save_graph(tmp_path / "model", calls, change=chained(30, 2))
    assert (model / "saved_model.pb").stat().st_size < 100_000
    with pytest.raises(GraphTooLarge, match="max_inlined_nodes"):
        check_saved_model(model)


def test_functions_that_call_one_another_too_deeply_are_refused(tmp_path: Path) -> None:
    check_saved_model(save_graph(tmp_path / "model", calls, change=chained(60, 1)))
    with pytest.raises(GraphTooLarge, match="max_call_depth"):
        check_saved_model(save_graph(tmp_path / "model", calls, change=chained(70, 1)))


def test_many_nodes_and_files_are_refused(tmp_path: Path) -> None:
    def many(x: tf.Tensor) -> tf.Tensor:
        for _ in range(50):
            x = tf.tanh(x)
        return x

    model = save_graph(tmp_path / "model", many)
    for limits in (GraphLimits(max_nodes=40), GraphLimits(max_graph_bytes=100)):
        with pytest.raises(GraphTooLarge):
            check_saved_model(model, limits=limits)
    (model / "assets").mkdir()
    for number in range(5):
        (model / "assets" / str(number)).touch()
    check_saved_model(model)
    with pytest.raises(GraphTooLarge, match="max_files"):
        check_saved_model(model, limits=GraphLimits(max_files=4))


def test_a_pattern_of_megabytes_is_refused(tmp_path: Path) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.StaticRegexReplace(input=x, pattern="a" * 2**21, rewrite="")

    with pytest.raises(GraphTooLarge, match="the pattern of op StaticRegexReplace"):
        check_saved_model(save_graph(tmp_path / "model", function, TEXT))


@pytest.fixture(scope="module")
def with_variables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    module = tf.Module()
    module.v = [tf.Variable(tf.zeros([number + 1, N_COLUMNS]), name=f"v{number}") for number in range(N_VARIABLES)]
    module.words = tf.Variable(["a", "bcd"])
    module.f = tf.function(lambda x: x + tf.add_n([tf.reduce_sum(v) for v in module.v]), input_signature=[VECTOR])
    model = tmp_path_factory.mktemp("variables") / "model"
    tf.saved_model.save(module, str(model), signatures=module.f)
    return model


def test_sizes_of_variables_are_read_without_them(with_variables: Path) -> None:
    floats = sum(number + 1 for number in range(N_VARIABLES)) * N_COLUMNS * 4
    size = check_saved_model(with_variables)
    assert floats + 2 * 24 <= size.variable_bytes <= floats + 2 * 24 + 20_000  # and the list of objects
    with pytest.raises(GraphTooLarge, match="max_variables_bytes"):
        check_saved_model(with_variables, limits=GraphLimits(max_variables_bytes=floats // 2))
    with pytest.raises(GraphTooLarge, match=r"variable 'v/.*max_variable_bytes"):
        check_saved_model(with_variables, limits=GraphLimits(max_variable_bytes=N_COLUMNS * 4 * N_VARIABLES - 1))
    with pytest.raises(GraphTooLarge, match="max_variables = 40"):
        check_saved_model(with_variables, limits=GraphLimits(max_variables=40))


def test_the_list_of_variables_agrees_with_tensorflow(with_variables: Path) -> None:
    from server.graph_checks._tensorflow import BundleEntryProto
    from server.graph_checks.checkpoint import _entries

    table = (with_variables / "variables" / "variables.index").read_bytes()
    read = {key.decode(): BundleEntryProto.FromString(value) for key, value in _entries(table) if key}
    theirs = tf.train.load_checkpoint(str(with_variables / "variables" / "variables")).get_variable_to_shape_map()
    assert {key: [dim.size for dim in entry.shape.dim] for key, entry in read.items()} == theirs


def test_a_list_of_variables_that_lies_is_damaged(with_variables: Path, tmp_path: Path) -> None:
    model = save_graph(tmp_path / "model", lambda x: x + 1.0)
    (model / "variables").mkdir()
    index = model / "variables" / "variables.index"
    shard = model / "variables" / "variables.data-00000-of-00001"
    table = (with_variables / "variables" / "variables.index").read_bytes()
    data = (with_variables / "variables" / shard.name).read_bytes()
    index.write_bytes(table)
    with pytest.raises(GraphDamaged, match="is not there"):
        check_saved_model(model)
    shard.write_bytes(data[:100])
    with pytest.raises(GraphDamaged, match="outside of its file"):
        check_saved_model(model)
    shard.write_bytes(data)
    check_saved_model(model)
    for damaged in (b"", table[:-1], table[:100] + table[-48:], b"\0" * len(table), table[1:], table[:40] + table[41:]):
        index.write_bytes(damaged)
        with pytest.raises(GraphDamaged, match=r"variables\.index is damaged"):
            check_saved_model(model)
    refused = 0
    for position in range(0, len(table), 7):  # whatever a byte becomes, an error is one of ours
        index.write_bytes(table[:position] + bytes([table[position] ^ 0x41]) + table[position + 1 :])
        try:
            check_saved_model(model)
        except (GraphDamaged, GraphTooLarge):
            refused += 1
    assert refused > len(table) // 7 // 4
