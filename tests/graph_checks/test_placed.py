"""Checkpoints and asset tables pass as TensorFlow writes them, and in no other place or form."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from server.graph_checks import FileNameRefused, FilesRefused
from server.graph_checks.check import check_saved_model
from tests.graph_checks.saved import TEXT, change_saved, save_graph, traced


def table(path: str) -> tf.lookup.StaticHashTable:
    whole, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
    return tf.lookup.StaticHashTable(
        tf.lookup.TextFileInitializer(path, tf.string, whole, tf.int64, number), default_value=-1
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a variable and a vocabulary, as tf.saved_model.save writes it."""
    directory = tmp_path_factory.mktemp("with_assets")
    (directory / "words.txt").write_text("a\nb\n")
    module = tf.Module()
    module.v = tf.Variable([1.0, 2.0])
    module.table = table(str(directory / "words.txt"))
    module.f = tf.function(
        lambda x: module.table.lookup(x) + tf.cast(module.v[0], tf.int64), input_signature=[TEXT], autograph=False
    )
    tf.saved_model.save(module, str(directory / "model"), signatures=module.f)
    return directory / "model"


@pytest.fixture(scope="module")
def saved_by_1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as TensorFlow 1 wrote it."""
    directory = tmp_path_factory.mktemp("of_tensorflow_1")
    (directory / "words.txt").write_text("a\nb\n")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.string, [], name="x")
        variable = tf.compat.v1.get_variable("w", initializer=1.0, use_resource=False)
        y = tf.cast(table(str(directory / "words.txt")).lookup(x), tf.float32) + variable
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()])
        tf.compat.v1.saved_model.simple_save(
            session, str(directory / "model"), {"x": x}, {"y": y}, legacy_init_op=tf.compat.v1.tables_initializer()
        )
    return directory / "model"


def test_models_as_tensorflow_writes_them_pass(saved: Path, saved_by_1: Path, tmp_path: Path) -> None:
    check_saved_model(saved, serves=True)
    check_saved_model(saved_by_1, serves=True)
    loaded = tf.saved_model.load(str(saved))
    tf.saved_model.save(loaded, str(tmp_path / "again"), signatures=loaded.signatures["serving_default"])
    check_saved_model(tmp_path / "again", serves=True)


def _nodes(meta_graph: Any) -> list[Any]:
    library = meta_graph.graph_def.library.function
    return [*meta_graph.graph_def.node, *(node for function in library for node in function.node_def)]


def _node(meta_graph: Any, op: str) -> Any:
    return next(node for node in _nodes(meta_graph) if node.op == op)


def _main(meta_graph: Any, name: str) -> Any:
    return next(node for node in meta_graph.graph_def.node if node.name == name)


def _passwd(node: Any) -> None:
    node.op = "Const"
    node.ClearField("input")
    node.attr.clear()
    node.attr["dtype"].type = tf.string.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto("/etc/passwd"))


def _variable_of_asset_from_constant(meta_graph: Any) -> None:
    passwd = meta_graph.graph_def.node.add(name="passwd")
    _passwd(passwd)
    _main(meta_graph, "Variable/Assign").input[1] = "passwd"


def _variable_assigned_twice(meta_graph: Any) -> None:
    passwd = meta_graph.graph_def.node.add(name="passwd")
    _passwd(passwd)
    again = meta_graph.graph_def.node.add()
    again.CopyFrom(_main(meta_graph, "Variable/Assign"))
    again.name, again.input[1] = "again", "passwd"


def _variable_by_another_name(meta_graph: Any) -> None:
    alias = meta_graph.graph_def.node.add()
    alias.CopyFrom(_main(meta_graph, "Variable"))
    alias.name = "alias"
    if "shared_name" not in alias.attr:
        alias.attr["shared_name"].s = b"Variable"


def _variable_that_is_restored(meta_graph: Any) -> None:
    _main(meta_graph, meta_graph.saver_def.restore_op_name).input.append("Variable")


def _asset_of_an_object_is_a_constant(meta_graph: Any) -> None:
    objects = meta_graph.object_graph_def
    constant = next(index for index, node in enumerate(objects.nodes) if node.WhichOneof("kind") == "constant")
    for function in objects.concrete_functions.values():
        for position, bound in enumerate(function.bound_inputs):
            if objects.nodes[bound].WhichOneof("kind") == "asset":
                function.bound_inputs[position] = constant


def _table_reads_a_constant(meta_graph: Any) -> None:
    for function in meta_graph.graph_def.library.function:
        for node in list(function.node_def):
            if node.op == "InitializeTableFromTextFileV2":
                _passwd(function.node_def.add(name="passwd"))
                node.input[1] = "passwd:output:0"


def _restore_reads_a_constant(meta_graph: Any) -> None:
    node = _node(meta_graph, "RestoreV2")
    for function in meta_graph.graph_def.library.function:
        if any(each.name == node.name and each.op == "RestoreV2" for each in function.node_def):
            _passwd(function.node_def.add(name="passwd"))
            node.input[0] = "passwd:output:0"


def _save_climbs(meta_graph: Any) -> None:
    for node in _nodes(meta_graph):
        if node.op == "Const" and node.attr["value"].tensor.string_val[:1] == [b"_temp/part"]:
            node.attr["value"].tensor.string_val[0] = b"/../../../../root/.ssh/authorized_keys"


def _served_by(op: Callable[[Any], str]) -> Callable[[Any], None]:
    def change(meta_graph: Any) -> None:
        name = op(meta_graph)
        meta_graph.signature_def["serving_default"].outputs["z"].name = f"{name}:0"

    return change


def _initialized_by_restoring(meta_graph: Any) -> None:
    meta_graph.signature_def["__saved_model_init_op"].outputs[
        "__saved_model_init_op"
    ].name = meta_graph.saver_def.restore_op_name


def _restored_by_saving(meta_graph: Any) -> None:
    meta_graph.saver_def.restore_op_name = meta_graph.saver_def.save_tensor_name.partition(":")[0]


def _restored_by_initializing(meta_graph: Any) -> None:
    meta_graph.saver_def.restore_op_name = "NoOp"


def _object_function(meta_graph: Any) -> None:
    (name,) = (
        function.signature.name
        for function in meta_graph.graph_def.library.function
        if any(node.op == "RestoreV2" for node in function.node_def)
    )
    meta_graph.object_graph_def.concrete_functions[name].SetInParent()


def _filename_is_another_tensor(meta_graph: Any) -> None:
    meta_graph.saver_def.filename_tensor_name = "serving_default_x:0"


CHANGES: dict[str, tuple[Callable[[Any], None], str]] = {
    "the asset's variable holds a constant": (_variable_of_asset_from_constant, "ReadVariableOp"),
    "the asset's variable is assigned twice": (_variable_assigned_twice, "ReadVariableOp"),
    "the asset's variable has another handle": (_variable_by_another_name, "ReadVariableOp"),
    "the asset's variable is restored": (_variable_that_is_restored, "ReadVariableOp"),
    "an object's asset is a constant": (_asset_of_an_object_is_a_constant, "an argument of function"),
    "the table reads a constant": (_table_reads_a_constant, "op Const"),
    "the restoring reads a constant": (_restore_reads_a_constant, "op Const"),
    "the saving climbs": (_save_climbs, "op StringJoin"),
    "a signature restores": (_served_by(lambda m: m.saver_def.restore_op_name), "run by a signature"),
    "a signature saves": (_served_by(lambda m: m.saver_def.save_tensor_name.partition(":")[0]), "run by a signature"),
    "a signature fills tables": (_served_by(lambda _: "StatefulPartitionedCall_1"), "run by a signature"),
    "the initialization restores": (_initialized_by_restoring, "run by the initialization"),
    "the restoring saves": (_restored_by_saving, "run by the restoring"),
    "the restoring fills tables": (_restored_by_initializing, "run by the restoring"),
    "an object restores": (_object_function, "run by an object"),
    "the saver's file name is an input": (_filename_is_another_tensor, "Placeholder"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_files_are_named_by_the_loader_alone(what: str, saved: Path, tmp_path: Path) -> None:
    change, sentence = CHANGES[what]
    model = shutil.copytree(saved, tmp_path / "model")
    with pytest.raises(FileNameRefused, match=re.escape(sentence)):
        check_saved_model(change_saved(model, change))


def test_a_constant_that_tensorflow_1_feeds_is_not_read_without_the_feed(saved_by_1: Path, tmp_path: Path) -> None:
    model = shutil.copytree(saved_by_1, tmp_path / "model")

    def change(meta_graph: Any) -> None:
        meta_graph.signature_def["serving_default"].outputs["z"].name = "text_file_init/InitializeTableFromTextFileV2"

    with pytest.raises(FileNameRefused, match="run by a signature"):
        check_saved_model(change_saved(model, change))


def test_file_ops_that_nothing_calls_are_refused(tmp_path: Path) -> None:
    def restores(name: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.RestoreV2(prefix=name, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32])[0]

    hidden = traced(restores, TEXT).function_def

    def change(meta_graph: Any) -> None:
        meta_graph.graph_def.library.function.add().CopyFrom(hidden)

    with pytest.raises(FileNameRefused, match=r"RestoreV2 .*that nothing gives the path of the variables"):
        check_saved_model(save_graph(tmp_path / "model", lambda x: x + 1.0, change=change))


def _asset(name: str) -> Callable[[Any], None]:
    def change(meta_graph: Any) -> None:
        meta_graph.asset_file_def[0].filename = name

    return change


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../saved_model.pb", "a/../../x", "gs://bucket/x", "file:///etc/passwd", "", ".", "none.txt",
     "words.txt/", "a\\b", "x" * 5000, "a\0b"],
)  # fmt: skip
def test_assets_are_files_of_the_archive(name: str, saved: Path, tmp_path: Path) -> None:
    model = shutil.copytree(saved, tmp_path / "model")
    with pytest.raises(FilesRefused, match="asset"):
        check_saved_model(change_saved(model, _asset(name)))


def test_assets_that_tensorflow_1_lists_are_checked(saved_by_1: Path, tmp_path: Path) -> None:
    model = shutil.copytree(saved_by_1, tmp_path / "model")
    (model / "assets" / "words.txt").unlink()
    with pytest.raises(FilesRefused, match=r"words.txt"):
        check_saved_model(model)
    (model / "assets" / "words.txt").symlink_to("/etc/passwd")
    with pytest.raises(FilesRefused, match="neither a file"):
        check_saved_model(model)
