"""What may not be in a graph is found wherever it is, and named."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from server.graph_checks import FilesRefused, GraphDamaged, GraphRefused, OpRefused, UnknownOp
from server.graph_checks.check import check_saved_model
from tests.graph_checks.jax_modules import LAPACK, OPEN_BATCH
from tests.graph_checks.saved import TEXT, VECTOR, Change, change_saved, save_graph, traced

_RAW = tf.raw_ops

Function = Callable[[tf.Tensor], tf.Tensor]


def reads(x: tf.Tensor) -> tf.Tensor:
    """What a graph hides: the text of a file as numbers."""
    return x + tf.cast(tf.strings.length(tf.io.read_file("/etc/passwd")), tf.float32)


def called(function: Function) -> Function:
    return tf.function(function, autograph=False)


def in_three_functions(x: tf.Tensor) -> tf.Tensor:
    return called(lambda a: called(lambda b: called(reads)(b) * 2.0)(a) + 1.0)(x)


def in_a_while_body(x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, reads(a)), (0, x))[1]


def in_a_while_condition(x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda a: tf.reduce_sum(reads(a)) < 3.0, lambda a: [a + 1.0], [x])[0]


def in_a_cond_branch(x: tf.Tensor) -> tf.Tensor:
    return tf.cond(x[0] > 1e30, lambda: reads(x), lambda: x)


def in_a_case_of_a_while_in_a_function(x: tf.Tensor) -> tf.Tensor:
    def step(i: tf.Tensor, a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return i + 1, tf.switch_case(i, [lambda: a, lambda: a * 2.0, lambda: called(reads)(a)])

    return called(lambda a: tf.while_loop(lambda i, _: i < 3, step, (0, a))[1])(x)


def in_a_map(x: tf.Tensor) -> tf.Tensor:
    body = traced(lambda a: reads(tf.fill([3], a))[0], tf.TensorSpec([], tf.float32))
    return _RAW.MapDefun(arguments=[x], captured_inputs=[], output_types=[tf.float32], output_shapes=[[]], f=body)[0]


def in_a_list_of_functions(x: tf.Tensor) -> tf.Tensor:
    branches = [traced(tf.tanh), traced(called(reads))]
    return _RAW.StatelessCase(branch_index=tf.cast(x[0], tf.int32), input=[x], Tout=[tf.float32], branches=branches)[0]


HIDDEN = (
    reads,
    in_three_functions,
    in_a_while_body,
    in_a_while_condition,
    in_a_cond_branch,
    in_a_case_of_a_while_in_a_function,
    in_a_map,
    in_a_list_of_functions,
)


@pytest.mark.parametrize("function", HIDDEN, ids=lambda function: function.__name__)
def test_a_file_is_not_read_wherever_the_op_hides(function: Function, tmp_path: Path) -> None:
    with pytest.raises(OpRefused) as refused:
        check_saved_model(save_graph(tmp_path / "model", function))
    sentence = str(refused.value)
    assert "op ReadFile" in sentence
    assert re.search(r"node '(while/|cond/)?ReadFile' of (the main graph|function '[\w<>]+')", sentence)
    assert ("the main graph" in sentence) == (function is reads)
    assert "put what it reads into variables" in sentence


def test_functions_that_nothing_calls_are_walked_too(tmp_path: Path) -> None:
    hidden = traced(reads).function_def

    def change(meta_graph: Any) -> None:
        meta_graph.graph_def.library.function.add().CopyFrom(hidden)

    with pytest.raises(OpRefused, match=rf"ReadFile .*function '{hidden.signature.name}'"):
        check_saved_model(save_graph(tmp_path / "model", lambda x: x + 1.0, change=change))


def test_gradients_of_the_user_are_walked_too(tmp_path: Path) -> None:
    @tf.custom_gradient
    def doubled(x: tf.Tensor) -> tuple[tf.Tensor, Function]:
        return x * 2.0, reads

    module = tf.Module()
    module.f = tf.function(doubled, input_signature=[VECTOR], autograph=False)
    tf.saved_model.save(
        module, str(tmp_path / "model"), options=tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    )
    with pytest.raises(OpRefused, match=r"op ReadFile .*of function"):
        check_saved_model(tmp_path / "model")


def test_every_meta_graph_is_walked(tmp_path: Path) -> None:
    from server.graph_checks._tensorflow import SavedModelProto

    fine = save_graph(tmp_path / "fine", lambda x: x + 1.0)
    content = (fine / "saved_model.pb").read_bytes()
    check_saved_model(fine)
    training = SavedModelProto.FromString((save_graph(tmp_path / "other", reads) / "saved_model.pb").read_bytes())
    training.meta_graphs[0].meta_info_def.tags[0] = "train"
    # Messages of one type one after the other are one message with all of their parts.
    (fine / "saved_model.pb").write_bytes(content + training.SerializeToString())
    with pytest.raises(OpRefused, match="ReadFile"):
        check_saved_model(fine)


def _with(op: Callable[[], Any]) -> Function:
    def function(x: tf.Tensor) -> tf.Tensor:
        made = op()
        with tf.control_dependencies([made] if isinstance(made, tf.Tensor | tf.Operation) else list(made)):
            return tf.identity(x)

    return function


REACHING_OUT: dict[str, Callable[[], Any]] = {
    "WriteFile": lambda: tf.io.write_file("/tmp/x", "x"),
    "MatchingFiles": lambda: tf.io.matching_files("/*"),
    "SaveV2": lambda: _RAW.SaveV2(prefix="/tmp/x", tensor_names=["a"], shape_and_slices=[""], tensors=[1.0]),
    "RestoreV2": lambda: _RAW.RestoreV2(prefix="/x", tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.int32]),
    "ImmutableConst": lambda: _RAW.ImmutableConst(dtype=tf.uint8, shape=[9], memory_region_name="/etc/passwd"),
    "WholeFileReaderV2": _RAW.WholeFileReaderV2,
    "LoadAndRemapMatrix": lambda: _RAW.LoadAndRemapMatrix(
        ckpt_path="/x", old_tensor_name="a", row_remapping=[0], col_remapping=[0], initializing_values=[1.0],
        num_rows=1, num_cols=1,
    ),
    "EagerPyFunc": lambda: tf.py_function(lambda: 1.0, [], tf.float32),
    "PyFunc": lambda: tf.numpy_function(lambda: 1.0, [], tf.float32),
    "PyFuncStateless": lambda: tf.numpy_function(lambda: 1.0, [], tf.float32, stateful=False),
    "TextLineDataset": lambda: _RAW.TextLineDataset(filenames=["/etc/passwd"], compression_type="", buffer_size=0),
    "DataServiceDatasetV2": lambda: tf.data.Dataset.range(2)._variant_tensor,
    "PrintV2": lambda: tf.print("x", output_stream="file:///tmp/x"),
    "Print": lambda: _RAW.Print(input=1.0, data=[1.0]),
    "Abort": _RAW.Abort,
    "SummaryWriter": _RAW.SummaryWriter,
    "CollectiveReduceV2": lambda: _RAW.CollectiveReduceV2(
        input=[1.0], group_size=2, group_key=1, instance_key=1, ordering_token=[], merge_op="Add", final_op="Id"
    ),
    "DebugIdentityV3": lambda: _RAW.DebugIdentityV3(input=1.0, debug_urls=["file:///tmp/x"]),
    "FIFOQueueV2": lambda: _RAW.FIFOQueueV2(component_types=[tf.float32]),
    "GetSessionHandleV2": lambda: _RAW.GetSessionHandleV2(value=1.0),
    "OutfeedEnqueue": lambda: _RAW.OutfeedEnqueue(input=1.0),
}  # fmt: skip


@pytest.mark.parametrize("op", REACHING_OUT)
def test_ops_that_reach_out_of_the_graph_are_refused_by_name(op: str, tmp_path: Path) -> None:
    named = "RangeDataset" if op.startswith("DataService") else op
    with pytest.raises(GraphRefused, match=rf"op {named} \(node '.*' of the main graph\)"):
        check_saved_model(save_graph(tmp_path / "model", _with(REACHING_OUT[op])))


@pytest.mark.parametrize(
    "op", ["RpcClient", "XlaHostCompute", "XlaCustomCallV2", "TPUExecute", "FileSystemSetConfiguration"]
)
def test_ops_that_python_has_no_name_for_are_refused_too(op: str, tmp_path: Path) -> None:
    with pytest.raises(OpRefused, match=f"op {op} "):
        check_saved_model(save_graph(tmp_path / "model", lambda x: x + 1.0, change=_op(op)))


def _first(meta_graph: Any, op: str) -> Any:
    return next(node for node in meta_graph.graph_def.node if node.op == op)


def _op(new: str) -> Change:
    def change(meta_graph: Any) -> None:
        _first(meta_graph, "AddV2").op = new

    return change


def _attribute(op: str, name: str, **value: Any) -> Change:
    def change(meta_graph: Any) -> None:
        attribute = _first(meta_graph, op).attr[name]
        attribute.Clear()
        for kind, content in value.items():
            setattr(attribute, kind, content)

    return change


def _device(name: str) -> Change:
    def change(meta_graph: Any) -> None:
        _first(meta_graph, "AddV2").device = name

    return change


def _min_consumer(meta_graph: Any) -> None:
    meta_graph.graph_def.versions.min_consumer = 10**6


def _deprecated(meta_graph: Any) -> None:
    _first(meta_graph, "AddV2").op = "BatchFFT"
    _first(meta_graph, "BatchFFT").attr.clear()


def _twice(meta_graph: Any) -> None:
    meta_graph.graph_def.node.add().CopyFrom(meta_graph.graph_def.node[0])


CHANGES: dict[str, tuple[Change, type[GraphRefused], str]] = {
    "a custom op": (_op("MyCompany>Add"), UnknownOp, "'MyCompany>Add' .* custom ops"),
    "an op of the runtime": (_op("_Recv"), UnknownOp, "'_Recv'"),
    "a name that is no op's": (_op("x" * 10**6), UnknownOp, "xxx"),
    "an attribute of another version": (_attribute("AddV2", "fancy", i=1), UnknownOp, "attribute 'fancy'"),
    "a graph of a later TensorFlow": (_min_consumer, UnknownOp, "version 1000000"),
    "an op that graphs of this version lack": (_deprecated, UnknownOp, "BatchFFT .* not in graphs of version 15"),
    "another job's device": (_device("/job:worker/task:3/device:CPU:0"), OpRefused, "/job:worker"),
    "another task's device": (_device("/job:localhost/replica:0/task:1"), OpRefused, "task:1"),
    "a device that is no name": (_device("grpc://10.0.0.1:80"), OpRefused, "grpc"),
    "a TPU": (_device("/device:TPU:0"), OpRefused, "TPU"),
    "a name twice": (_twice, GraphDamaged, "same name"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_this_tensorflow_or_machine_does_not_have_is_refused(what: str, tmp_path: Path) -> None:
    change, error, sentence = CHANGES[what]
    with pytest.raises(error, match=sentence) as refused:
        check_saved_model(save_graph(tmp_path / "model", lambda x: x + 1.0, change=change))
    assert len(str(refused.value)) < 1_000


def test_devices_of_this_process_are_fine(tmp_path: Path) -> None:
    for number, name in enumerate(
        ("/device:CPU:0", "/cpu:0", "/job:localhost/replica:0/task:0/device:GPU:1", "/GPU:*")
    ):
        check_saved_model(save_graph(tmp_path / str(number), lambda x: x + 1.0, change=_device(name)))


def _parse(out_type: tf.DType) -> Function:
    return _with(lambda: _RAW.ParseTensor(serialized="", out_type=out_type))


def _module(content: bytes) -> Change:
    def change(meta_graph: Any) -> None:
        node = _first(meta_graph, "AddV2")
        node.op = "XlaCallModule"
        node.attr.clear()
        node.attr["module"].s = content
        node.attr["version"].i = 5

    return change


HELD: dict[str, tuple[Function, str]] = {
    "uninitialized memory": (_with(lambda: _RAW.Empty(shape=[9], dtype=tf.float32)), "nobody has written"),
    "a resource out of bytes": (_parse(tf.resource), "handle"),
    "a variant out of bytes": (_parse(tf.variant), "variant"),
    "the bytes of a handle": (
        _with(lambda: _RAW.SerializeTensor(tensor=tf.constant(1.0))),
        "handle",
    ),
    "descriptors from a file": (
        _with(
            lambda: _RAW.DecodeProtoV2(
                bytes="", message_type="a.B", field_names=[], output_types=[], descriptor_source="/etc/descriptors"
            )
        ),
        "from a file",
    ),
    "a vocabulary from a file": (
        _with(
            lambda: _RAW.FixedUnigramCandidateSampler(
                true_classes=[[1]], num_true=1, num_sampled=1, unique=False, range_max=3, vocab_file="/etc/passwd"
            )
        ),
        "from a file",
    ),
    "another session's variable": (
        _with(lambda: _RAW.VarHandleOp(dtype=tf.float32, shape=[], container="theirs", shared_name="v")),
        "container",
    ),
}


@pytest.mark.parametrize("what", HELD)
def test_allowed_ops_are_held_to_their_conditions(what: str, tmp_path: Path) -> None:
    function, sentence = HELD[what]
    change = None
    if what == "the bytes of a handle":
        change = _attribute("SerializeTensor", "T", type=tf.resource.as_datatype_enum)
    with pytest.raises(OpRefused, match=sentence):
        check_saved_model(save_graph(tmp_path / "model", function, change=change))


def test_modules_of_xla_may_not_call_out(tmp_path: Path) -> None:
    for content, sentence in (
        (LAPACK, "custom_call of 'lapack"),
        (b'"stablehlo.custom_call"() {}', "no module of XLA"),
    ):
        with pytest.raises(OpRefused, match=sentence):
            check_saved_model(save_graph(tmp_path / "model", lambda x: x + 1.0, change=_module(content)))
    check_saved_model(save_graph(tmp_path / "model", lambda x: x + 1.0, change=_module(OPEN_BATCH)))


def test_the_same_ops_pass_where_they_reach_nothing(tmp_path: Path) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        sampled = _RAW.FixedUnigramCandidateSampler(
            true_classes=[[1]], num_true=1, num_sampled=1, unique=False, range_max=2, unigrams=[0.5, 0.5]
        )
        zeros = _RAW.Empty(shape=[3], dtype=tf.float32, init=True)
        parsed = tf.io.parse_tensor(tf.io.serialize_tensor(x), tf.float32)
        return zeros + parsed + sampled.true_expected_count[0]

    assert check_saved_model(save_graph(tmp_path / "model", function)).n_nodes > 5


def test_a_handle_in_a_constant_is_refused(tmp_path: Path) -> None:
    def change(meta_graph: Any) -> None:
        tensor = _first(meta_graph, "Const").attr["value"].tensor
        tensor.Clear()
        tensor.dtype = tf.resource.as_datatype_enum
        tensor.resource_handle_val.add(name="v", container="localhost")

    with pytest.raises(OpRefused, match=r"would name what is in the server's memory"):
        check_saved_model(save_graph(tmp_path / "model", lambda x: x + tf.constant(1.0), change=change))


@pytest.mark.parametrize("other", ["saved_model.pbtxt", "saved_model.cpb"])
def test_a_second_graph_that_nobody_checks_is_refused(other: str, tmp_path: Path) -> None:
    model = save_graph(tmp_path / "model", lambda x: x + 1.0)
    (model / other).write_text("")
    with pytest.raises(FilesRefused, match=other):
        check_saved_model(model)


def test_links_in_the_directory_are_refused(tmp_path: Path) -> None:
    model = save_graph(tmp_path / "model", lambda x: x + 1.0)
    (model / "variables").mkdir()
    (model / "variables" / "variables.data-00000-of-00001").symlink_to("/etc/passwd")
    with pytest.raises(FilesRefused, match=r"variables\.data.* neither a file nor a directory"):
        check_saved_model(model)


@pytest.mark.parametrize("content", [b"", b"\xff" * 20, b"PK\x03\x04"])
def test_what_is_no_graph_is_damaged(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(content)
    with pytest.raises(GraphDamaged):
        check_saved_model(tmp_path)


def test_strings_of_the_sender_are_cut_and_quoted(tmp_path: Path) -> None:
    def change(meta_graph: Any) -> None:
        node = _first(meta_graph, "AddV2")
        node.op, node.name = "Evil\n" * 1000, "\x1b[31m" + "n" * 10_000

    with pytest.raises(UnknownOp) as refused:
        check_saved_model(save_graph(tmp_path / "model", lambda x: x + 1.0, change=change))
    assert len(str(refused.value)) < 600
    assert str(refused.value).isprintable()


def test_a_model_that_serves_may_not_remember(tmp_path: Path) -> None:
    module = tf.Module()
    module.v = tf.Variable(tf.zeros([3]))
    module.f = tf.function(module.v.assign_add, input_signature=[VECTOR], autograph=False)
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.f)
    check_saved_model(tmp_path / "model")
    with pytest.raises(OpRefused, match=r"AssignAddVariableOp .* changes what the next request would see"):
        check_saved_model(tmp_path / "model", serves=True)
    change_saved(tmp_path / "model", lambda meta_graph: meta_graph.signature_def.pop("serving_default"))
    check_saved_model(tmp_path / "model", serves=True)
    assert TEXT.dtype == tf.string
