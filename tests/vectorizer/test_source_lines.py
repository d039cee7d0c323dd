from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tensorflow as tf

from vectorizer import LoopedOpError, SideEffectError, saved_source, vectorize
from vectorizer._pfor import DebugInfoProto
from vectorizer.saved_source import keep_user_lines

DEBUG_FILE = Path("debug", "saved_model_debug_info.pb")
X = {"x": tf.TensorSpec([3, 4], tf.float32, name="x")}

#: The user's file; an op's line is found by the comment beside it.
SOURCE = """\
import tensorflow as tf

WEIGHTS = tf.Variable(tf.ones([4, 4]))


def activation(h):
    return tf.nn.relu(h) * 0.5  # RELU


def make(step):
    if step == 1:

        @tf.function
        def block(h):
            return tf.sin(h)  # FIRST BLOCK

    else:

        @tf.function
        def block(h):
            return tf.sin(h)  # SECOND BLOCK

    return block


first, second = make(1), make(2)


def predict(x):
    h = x @ WEIGHTS  # MATMUL
    while tf.reduce_sum(h) > 3.0:  # SUM
        h = activation(h)
    if h[0, 0] > 0.1:
        h = tf.exp(h)  # EXP
    return first(h) + second(h)


def resized(x):
    return tf.raw_ops.SerializeTensor(tensor=x)  # RESIZE


def checked(x):
    tf.print(x)  # PRINT
    return x
"""


def line_of(comment: str) -> str:
    (number,) = (n for n, line in enumerate(SOURCE.splitlines(), 1) if line.endswith(f"# {comment}"))
    return f"ranker.py:{number}"


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Import the user's file from a directory of its own."""
    path = tmp_path_factory.mktemp("home-of-the-user") / "ranker.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("ranker", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ranker"] = module
    spec.loader.exec_module(module)
    return module


def save(module: ModuleType, name: str, directory: Path, *, debug_info: bool = True) -> Path:
    """Save a function of the user's as anybody would, without the client."""
    root = tf.Module()
    root.weights = module.WEIGHTS
    concrete = tf.function(getattr(module, name)).get_concrete_function(**X)
    options = tf.saved_model.SaveOptions(save_debug_info=debug_info)
    tf.saved_model.save(root, str(directory), signatures={"score": concrete}, options=options)
    return directory


def vectorize_saved(directory: Path) -> Any:
    loaded = tf.saved_model.load(str(directory))
    signature = loaded.signatures["score"]
    source = saved_source(directory, "score", signature)
    vectorized = vectorize(signature, inputs=X, buckets=(2,), name=source.name, lines=source.lines)
    vectorized.keep_alive = loaded
    return vectorized


def where(vectorized: Any, op: str) -> set[str]:
    return {place for record in vectorized.certificate.ops if record.op == op for place in record.where}


def assert_lines_are_the_users(vectorized: Any) -> None:
    assert where(vectorized, "MatMul") == {line_of("MATMUL")}
    assert where(vectorized, "Relu") == {line_of("RELU")}
    assert where(vectorized, "Sum") == {line_of("SUM")}
    assert where(vectorized, "Exp") == {line_of("EXP")}


def test_an_op_is_placed_at_the_innermost_line_of_the_users_code(ranker):
    vectorized = vectorize(ranker.predict, inputs=X, buckets=(2,))

    assert_lines_are_the_users(vectorized)
    assert where(vectorized, "Sin") == {line_of("FIRST BLOCK"), line_of("SECOND BLOCK")}


def test_no_op_is_placed_at_the_line_that_called_the_vectorizer(ranker):
    vectorized = vectorize(ranker.predict, inputs=X, buckets=(2,))

    places = {place for record in vectorized.certificate.ops for place in record.where}
    assert not [place for place in places if place.startswith(Path(__file__).name)]


def test_a_saved_function_is_placed_at_the_users_lines_too(ranker, tmp_path):
    assert_lines_are_the_users(vectorize_saved(save(ranker, "predict", tmp_path)))


def test_two_saved_functions_of_the_same_name_keep_their_own_lines(ranker, tmp_path):
    vectorized = vectorize_saved(save(ranker, "predict", tmp_path))

    assert where(vectorized, "Sin") == {line_of("FIRST BLOCK"), line_of("SECOND BLOCK")}


def test_a_refused_op_of_a_saved_function_is_named_with_its_line(ranker, tmp_path):
    with pytest.raises(LoopedOpError) as looped:
        vectorize_saved(save(ranker, "resized", tmp_path / "resized"))
    with pytest.raises(SideEffectError, match=line_of("PRINT")):
        vectorize_saved(save(ranker, "checked", tmp_path / "checked"))

    assert looped.value.ops == {"SerializeTensor": (line_of("RESIZE"),)}
    assert f"op SerializeTensor ({line_of('RESIZE')})" in str(looped.value)


def test_without_debug_information_the_ops_name_stands_in_and_the_signature_is_the_name(ranker, tmp_path):
    with pytest.raises(LoopedOpError, match=r"^score: op SerializeTensor \(node 'SerializeTensor'\)"):
        vectorize_saved(save(ranker, "resized", tmp_path, debug_info=False))


def test_reduced_debug_information_has_the_same_lines_and_no_path(ranker, tmp_path):
    directory = save(ranker, "predict", tmp_path)
    full = (directory / DEBUG_FILE).read_bytes()
    keep_user_lines(directory)
    reduced = (directory / DEBUG_FILE).read_bytes()

    assert b"home-of-the-user" in full
    assert b"ranker.py" in reduced
    assert b"/ranker.py" not in reduced
    assert b"home-of-the-user" not in reduced
    assert b"site-packages" not in reduced
    assert_lines_are_the_users(vectorize_saved(directory))


def test_reducing_leaves_a_model_without_debug_information_alone(ranker, tmp_path):
    directory = save(ranker, "predict", tmp_path, debug_info=False)

    keep_user_lines(directory)

    assert not (directory / DEBUG_FILE).exists()


@pytest.mark.parametrize(
    ("files", "place"),
    [
        (["/home/ann/ranker.py"], "ranker.py:7"),
        (["C:\\Users\\ann\\ranker.py"], "ranker.py:7"),
        (["/home/ann/ranker.py", "/usr/lib/python3/dist-packages/tensorflow/ops.py"], "ranker.py:7"),
        (["/home/ann/ranker.py", "C:\\venv\\Lib\\site-packages\\tensorflow\\ops.py"], "ranker.py:7"),
        (["/home/ann/ranker.py", "<string>"], "ranker.py:7"),
        (["/home/ann/train.py", "/opt/rowwise/vectorizer/trace.py", "/home/ann/ranker.py"], "ranker.py:7"),
        (["/home/ann/train.py", "/opt/rowwise/vectorizer/trace.py"], None),
        (["/home/ann/train.py", "/opt/rowwise/rowwise/_trace.py"], None),
        (["/home/ann/two\nlines.py"], None),
        (["/home/ann/" + "x" * 300 + ".py"], None),
        (["/home/ann/"], None),
    ],
)
def test_frames_of_another_machine_are_told_apart_by_their_paths(ranker, tmp_path, files, place):
    directory = save(ranker, "resized", tmp_path)
    info = DebugInfoProto(files=files)
    for index in range(len(files)):
        info.frames_by_id[index + 1].file_index = index
        info.frames_by_id[index + 1].line = 7
        info.traces_by_id[1].frame_id.append(index + 1)
    full = DebugInfoProto.FromString((directory / DEBUG_FILE).read_bytes())
    (name,) = (name for name in full.name_to_trace_id if name.startswith("SerializeTensor@"))
    info.name_to_trace_id[name] = 1
    (directory / DEBUG_FILE).write_bytes(info.SerializeToString())

    with pytest.raises(LoopedOpError) as refused:
        vectorize_saved(directory)

    assert refused.value.ops == {"SerializeTensor": (place or "node 'SerializeTensor'",)}


def test_debug_information_that_points_nowhere_has_no_lines(ranker, tmp_path):
    directory = save(ranker, "resized", tmp_path)
    full = DebugInfoProto.FromString((directory / DEBUG_FILE).read_bytes())
    for number in full.frames_by_id:
        full.frames_by_id[number].file_index = 10_000
    full.name_to_trace_id["no at sign"] = 1
    (directory / DEBUG_FILE).write_bytes(full.SerializeToString())

    with pytest.raises(LoopedOpError, match="node 'SerializeTensor'"):
        vectorize_saved(directory)


def test_debug_information_of_older_tensorflow_is_read(ranker, tmp_path):
    directory = save(ranker, "resized", tmp_path)
    full = DebugInfoProto.FromString((directory / DEBUG_FILE).read_bytes())
    older = DebugInfoProto(files=full.files)
    for name, number in full.name_to_trace_id.items():
        frames = [full.frames_by_id[each] for each in full.traces_by_id[number].frame_id]
        older.traces[name].file_line_cols.extend(frames)
    (directory / DEBUG_FILE).write_bytes(older.SerializeToString())

    with pytest.raises(LoopedOpError, match=line_of("RESIZE")):
        vectorize_saved(directory)
