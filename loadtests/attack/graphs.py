"""Graphs with ops that reach out of the graph, hidden where a reader may not look."""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loadtests.attack.case import Harm, attack
from loadtests.attack.target import Target

__all__: list[str] = []

_AREA = "intake: graphs"


def _archive(function: Callable[..., Any], *, input_name: str = "x") -> bytes:
    """Save a function as a SavedModel, as TensorFlow itself does, and pack it."""
    import tensorflow as tf

    module = tf.Module()
    module.serve = tf.function(function, autograph=False)
    spec = tf.TensorSpec([3], tf.float32, name=input_name)
    with tempfile.TemporaryDirectory(prefix="rowwise-attack-") as name:
        tf.saved_model.save(module, name, signatures=module.serve.get_concrete_function(spec))
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            archive.add(name, arcname=".")
    return buffer.getvalue()


def _refused(target: Target, function: Callable[..., Any], op: str) -> str:
    answer = target.upload(_archive(function))
    said = target.refused(answer)
    if op not in answer.text:
        raise Harm(f"it was refused for another reason than {op}: {answer.text[:300]}")
    return said


def _read(path: Path) -> Any:
    import tensorflow as tf

    return tf.strings.to_number(tf.strings.substr(tf.io.read_file(str(path)), 0, 1))


@attack(_AREA, "reads a file")
def reads_a_file(target: Target) -> str:
    """A model whose answer is the content of a file."""
    return _refused(target, lambda x: {"y": x + _read(target.secrets.file)}, "ReadFile")


@attack(_AREA, "writes a file")
def writes_a_file(target: Target) -> str:
    """As a control dependency, so that no output shows it."""
    import tensorflow as tf

    def run(x: Any) -> Any:
        with tf.control_dependencies([tf.io.write_file(str(target.secrets.untouched), "owned")]):
            return {"y": x + 1.0}

    return _refused(target, run, "WriteFile")


@attack(_AREA, "reads a file three functions deep")
def deep_in_functions(target: Target) -> str:
    """Each function calls the next."""
    import tensorflow as tf

    call: Callable[[Any], Any] = lambda x: x + _read(target.secrets.file)  # noqa: E731
    for _ in range(3):
        call = tf.function(call, autograph=False)
    return _refused(target, lambda x: {"y": call(x)}, "ReadFile")


@attack(_AREA, "reads a file in the body of a loop")
def in_a_loop(target: Target) -> str:
    """The body runs only for large numbers, which no check would try."""
    import tensorflow as tf

    def run(x: Any) -> Any:
        (y,) = tf.while_loop(lambda y: tf.reduce_sum(y) > 1e30, lambda y: (y * 0.0 + _read(target.secrets.file),), (x,))
        return {"y": y}

    return _refused(target, run, "ReadFile")


@attack(_AREA, "writes a file in a branch that is never taken in a check")
def in_a_branch(target: Target) -> str:
    """A trap that waits for a caller who knows the number."""
    import tensorflow as tf

    def trap(x: Any) -> Any:
        with tf.control_dependencies([tf.io.write_file(str(target.secrets.untouched), "owned")]):
            return x + 0.0

    return _refused(
        target, lambda x: {"y": tf.cond(tf.equal(x[0], 1234.5), lambda: trap(x), lambda: x + 1.0)}, "WriteFile"
    )


@attack(_AREA, "reads a file in a gradient that somebody may ask for")
def in_a_gradient(target: Target) -> str:
    """The forward pass is harmless."""
    import tensorflow as tf

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def harmless(x: Any) -> Any:
        return x * 2.0, lambda dy: dy + _read(target.secrets.file)

    return _refused(target, lambda x: {"y": tf.gradients(harmless(x), x)[0]}, "ReadFile")


@attack(_AREA, "lists a directory")
def lists_a_directory(target: Target) -> str:
    """By the op for files that match a pattern."""
    import tensorflow as tf

    return _refused(
        target, lambda x: {"y": x + tf.cast(tf.size(tf.io.matching_files("/etc/*")), tf.float32)}, "MatchingFiles"
    )


@attack(_AREA, "calls Python")
def calls_python(target: Target) -> str:
    """By a number that names a function of the process that serves."""
    import tensorflow as tf

    return _refused(target, lambda x: {"y": tf.numpy_function(lambda v: v, [x], tf.float32)}, "PyFunc")


@attack(_AREA, "prints to a file of its choice")
def prints_to_a_file(target: Target) -> str:
    """tf.print takes ``file://``."""
    import tensorflow as tf

    def run(x: Any) -> Any:
        with tf.control_dependencies([tf.print("owned", output_stream=f"file://{target.secrets.untouched}")]):
            return {"y": x + 1.0}

    return _refused(target, run, "PrintV2")


@attack(_AREA, "a data set that reads a file")
def data_set(target: Target) -> str:
    """Reduced inside the graph."""
    import tensorflow as tf

    def run(x: Any) -> Any:
        lines = tf.data.TextLineDataset(str(target.secrets.file)).map(tf.strings.length)
        return {"y": x + tf.cast(lines.reduce(0, lambda total, n: total + n), tf.float32)}

    return _refused(target, run, "TextLineDataset")


@attack(_AREA, "a constant of 40 GB in 100 bytes")
def repeated_constant(target: Target) -> str:
    """A TensorProto repeats its last value as often as its shape says."""
    import tensorflow as tf

    from server.graph_checks._tensorflow import SavedModelProto

    data = _archive(lambda x: {"y": x + tf.constant([1.0, 2.0, 3.0])})
    files = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                files[member.name] = file.read()
    name = next(name for name in files if name.endswith("saved_model.pb"))
    model = SavedModelProto()
    model.ParseFromString(files[name])
    for function in model.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            if node.op == "Const" and node.attr["dtype"].type == 1:
                tensor = node.attr["value"].tensor
                tensor.Clear()
                tensor.dtype = 1
                tensor.tensor_shape.dim.add(size=10 * 2**30)
                tensor.float_val.append(1.0)
    files[name] = model.SerializeToString()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for each, content in files.items():
            info = tarfile.TarInfo(each)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return target.refused(target.upload(buffer.getvalue()))


@attack(_AREA, "an op of a library that the server does not have")
def custom_op(target: Target) -> str:
    """And whose name would be in an error of TensorFlow's with a path of the machine."""
    from server.graph_checks._tensorflow import SavedModelProto

    model = SavedModelProto(saved_model_schema_version=1)
    graph = model.meta_graphs.add()
    graph.meta_info_def.tags.append("serve")
    graph.graph_def.node.add(name="n", op="ZeroOut")
    from loadtests.attack.target import archive_of

    return target.refused(target.upload(archive_of({"saved_model.pb": model.SerializeToString()})))


@attack(_AREA, "a protobuf that is nested 10,000 deep")
def deep_protobuf(target: Target) -> str:
    """Parsers that recurse overflow their stack."""
    from loadtests.attack.target import archive_of

    data = b""
    for _ in range(10_000):
        data = b"\x12" + _varint(len(data)) + data
    return target.refused(target.upload(archive_of({"saved_model.pb": data})))


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
