"""From an artifact on disk to batches that hold nobody else's bytes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from server.artifact import ExecutionMode
from server.batching import Batch, CostTable, ExampleFailed, Group, Item
from server.engine import ArtifactRefused, GroupRunner, LoadedModel, LoadFailed
from server.protocol import Rows
from server.signature import LengthAxis, ModelSignature, TensorSignature
from tests.engine.conftest import WriteArtifact

GROUP = Group("test", CostTable({1: 1.0}), label="model 'small'")


def tensors(**shapes: tuple[str, tuple[Any, ...]]) -> tuple[TensorSignature, ...]:
    return tuple(TensorSignature(name=name, dtype=dtype, shape=shape) for name, (dtype, shape) in shapes.items())


def batch_of(bucket: int, *requests: Rows | tuple[Rows, int, int]) -> Batch:
    spans = []
    for request in requests:
        rows, start, stop = request if isinstance(request, tuple) else (request, 0, request.n)
        item = Item(GROUP, rows.n, rows, arrived_s=0.0, deadline_s=None, on_done=lambda item: None)
        spans.append((item, start, stop))
    n_rows = sum(stop - start for _, start, stop in spans)
    return Batch(1, GROUP, bucket, spans, n_rows=n_rows, reason="test", dispatched_s=0.0, predicted_s=math.nan)


def runner(loaded: LoadedModel, lengths: tuple[int, ...] = ()) -> GroupRunner:
    return loaded.groups["predict", lengths]


IDENTITY = ModelSignature(
    inputs=tensors(x=("float32", (3,)), s=("string", ())), outputs=tensors(x=("float32", (3,)), s=("string", ()))
)


def rows(*values: float) -> Rows:
    x = np.array([[value] * 3 for value in values], np.float32).reshape(-1, 3)
    return Rows(len(values), (x, np.array([f"{value}\0".encode() for value in values], object)))


@pytest.fixture
def identity(write_artifact: WriteArtifact) -> LoadedModel:
    artifact = write_artifact(lambda x, s: {"x": tf.identity(x), "s": tf.identity(s)}, IDENTITY, buckets=(1, 4, 16))
    return LoadedModel.load(artifact)


def test_outputs_are_not_the_memory_that_the_next_batch_is_copied_into(identity: LoadedModel) -> None:
    first = runner(identity).run(batch_of(4, rows(1, 2), rows(3)))
    kept = [output.copy() for output in first]
    runner(identity).run(batch_of(4, rows(7, 8, 9, 10)))
    runner(identity).run(batch_of(1, rows(11)))
    for output, copy in zip(first, kept, strict=True):
        assert output.tolist() == copy.tolist()
    assert first[0][:3, 0].tolist() == [1.0, 2.0, 3.0]
    assert first[1][:3].tolist() == [b"1\0", b"2\0", b"3\0"]


def test_requests_memory_is_left_as_it_was(identity: LoadedModel) -> None:
    sent = rows(1, 2)
    for column in sent.columns:
        column.setflags(write=False)  # type: ignore[union-attr]
    outputs = runner(identity).run(batch_of(4, sent))
    assert not any(np.may_share_memory(output, column) for output in outputs for column in sent.columns)


def test_batches_of_ten_two_and_ten_rows_never_show_each_other(identity: LoadedModel) -> None:
    run = runner(identity).run
    for base, n_rows, bucket in ((100, 10, 16), (200, 2, 4), (300, 10, 16), (400, 1, 1), (500, 1, 16), (600, 3, 4)):
        values = [float(base + row) for row in range(n_rows)]
        x, s = run(batch_of(bucket, rows(*values)))
        assert len(x) == len(s) == bucket
        assert x[:n_rows, 0].tolist() == values
        # Padding repeats this batch's own first row: nothing of an earlier batch, and nothing that nobody sent.
        assert set(x[n_rows:, 0].tolist()) <= {values[0]}
        assert set(s[n_rows:].tolist()) <= {f"{values[0]}\0".encode()}


def test_part_of_a_request_is_taken_from_its_own_rows(identity: LoadedModel) -> None:
    long = rows(*range(10))
    x, s = runner(identity).run(batch_of(4, (long, 8, 10), (rows(77, 78, 79), 1, 2)))
    assert x[:3, 0].tolist() == [8.0, 9.0, 78.0]
    assert s[:3].tolist() == [b"8\0", b"9\0", b"78\0"]


SEQUENCE = ModelSignature(
    inputs=tensors(x=("int32", ("n",)), w=("string", ("n",))),
    outputs=tensors(x=("int32", ("n",)), w=("string", ("n",)), told=("int64", ())),
    axes=(LengthAxis(name="n", max=5, buckets=(2, 5), length_input="length", length_dtype="int64"),),
)


def sequences(*lengths: int, base: int = 0) -> Rows:
    return Rows(
        len(lengths),
        (
            [np.arange(1, length + 1, dtype=np.int32) + base for length in lengths],
            [np.array([b"w"] * length, object) for length in lengths],
        ),
        [(length,) for length in lengths],
    )


def test_padding_of_a_shorter_row_is_blank_after_a_longer_one(write_artifact: WriteArtifact) -> None:
    loaded = LoadedModel.load(write_artifact(lambda x, w, length: {"x": x + 0, "w": w, "told": length}, SEQUENCE))
    assert set(loaded.groups) == {("predict", (2,)), ("predict", (5,))}
    run = runner(loaded, (5,)).run
    run(batch_of(4, sequences(5, 5, 5, 5, base=100)))
    x, w, told = run(batch_of(4, sequences(3, 0), (sequences(5, 4), 1, 2)))
    assert x[:3].tolist() == [[1, 2, 3, 0, 0], [0] * 5, [1, 2, 3, 4, 0]]
    assert w[1].tolist() == [b""] * 5
    assert w[2].tolist() == [b"w"] * 4 + [b""]
    assert told.tolist() == [3, 0, 4, 3]
    assert x[3].tolist() == x[0].tolist()


def test_bucket_limit_leaves_larger_buckets_out_and_keeps_the_smallest(write_artifact: WriteArtifact) -> None:
    artifact = write_artifact(lambda x, s: {"x": x, "s": s}, IDENTITY, buckets=(2, 4, 16))
    for limit, kept in ((None, {2, 4, 16}), (5, {2, 4}), (4, {2, 4}), (1, {2})):
        loaded = LoadedModel.load(artifact, batch_limit=limit)
        assert set(runner(loaded).costs_s) == kept
        loaded.close()


def test_model_that_refuses_zeros_is_warmed_at_every_bucket_all_the_same(write_artifact: WriteArtifact) -> None:
    signature = ModelSignature(inputs=tensors(x=("int32", ())), outputs=tensors(y=("int32", ())))
    loaded = LoadedModel.load(write_artifact(lambda x: {"y": 10 // x}, signature, buckets=(1, 4)))
    assert runner(loaded).run(batch_of(4, Rows(1, (np.array([5], np.int32),))))[0].tolist() == [2] * 4
    with pytest.raises(ExampleFailed, match="division by zero"):
        runner(loaded).run(batch_of(1, Rows(1, (np.array([0], np.int32),))))


def test_bad_rows_of_a_batch_have_errors_and_the_others_results(write_artifact: WriteArtifact) -> None:
    signature = ModelSignature(inputs=tensors(x=("int32", ())), outputs=tensors(y=("int32", ())))
    loaded = LoadedModel.load(write_artifact(lambda x: {"y": 10 // x}, signature, buckets=(1, 4)))
    batch = batch_of(4, Rows(4, (np.array([5, 0, 2, 0], np.int32),)))
    (outputs,), failed = runner(loaded).run_isolated(batch, ExampleFailed("the batch failed"))
    assert failed.errors.keys() == {1, 3}
    assert [outputs[0], outputs[2]] == [2, 5]


def test_model_that_fails_otherwise_when_it_is_warmed_is_not_loaded(write_artifact: WriteArtifact) -> None:
    def fails(x: tf.Tensor, s: tf.Tensor) -> dict[str, tf.Tensor]:
        never_assigned = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="nothing")
        return {"x": x + tf.raw_ops.ReadVariableOp(resource=never_assigned, dtype=tf.float32), "s": s}

    with pytest.raises(LoadFailed, match="bucket 4 failed: FailedPreconditionError"):
        LoadedModel.load(write_artifact(fails, IDENTITY, buckets=(4,)))


def spoil_manifest(artifact: Path, **changes: Any) -> None:
    path = artifact / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_damaged_artifact_is_refused_with_a_reason(write_artifact: WriteArtifact, tmp_path: Path) -> None:
    with pytest.raises(ArtifactRefused, match="can't be read"):
        LoadedModel.load(tmp_path / "nothing")
    artifact = write_artifact(lambda x, s: {"x": x, "s": s}, IDENTITY)
    manifest = json.loads((artifact / "model.json").read_text())
    spoil_manifest(artifact, entries={"predict": [{**manifest["entries"]["predict"][0], "signature": "gone"}]})
    with pytest.raises(ArtifactRefused, match="incomplete: signature 'gone'"):
        LoadedModel.load(artifact)
    spoil_manifest(artifact, format_version=99)
    with pytest.raises(ArtifactRefused, match="format 99"):
        LoadedModel.load(artifact)
    for text in ("", "[]", "{}", '{"format_version": 1}', "\0" * 100):
        (artifact / "model.json").write_text(text)
        with pytest.raises(ArtifactRefused):
            LoadedModel.load(artifact)
    (artifact / "model.json").write_text(json.dumps(manifest))
    (artifact / "saved_model" / "saved_model.pb").write_bytes(b"\xff\xff")
    with pytest.raises(ArtifactRefused, match=r"saved_model\.pb can't be read"):
        LoadedModel.load(artifact)


def test_artifact_whose_graph_would_reach_out_is_not_loaded(write_artifact: WriteArtifact, tmp_path: Path) -> None:
    kept = tmp_path / "kept"

    def writes(x: tf.Tensor, s: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.control_dependencies([tf.io.write_file(str(kept), s[0])]):
            return {"x": tf.identity(x), "s": s}

    with pytest.raises(ArtifactRefused, match=r"op WriteFile .* reads or writes files"):
        LoadedModel.load(write_artifact(writes, IDENTITY))
    assert not kept.exists()


def test_artifact_that_remembers_what_it_is_sent_is_not_loaded(write_artifact: WriteArtifact) -> None:
    last = tf.Variable(tf.zeros([4, 3]))

    def remembers(x: tf.Tensor, s: tf.Tensor) -> dict[str, tf.Tensor]:
        before = last.read_value()
        with tf.control_dependencies([before]), tf.control_dependencies([last.assign(x)]):
            return {"x": tf.identity(before), "s": s}

    with pytest.raises(ArtifactRefused, match=r"AssignVariableOp .* changes what the next request would see"):
        LoadedModel.load(write_artifact(remembers, IDENTITY, buckets=(4,), variables=[last]))


def test_each_bucket_runs_in_its_own_mode(write_artifact: WriteArtifact) -> None:
    modes = {
        1: ExecutionMode(compiler="graph", executor="single_threaded", intra_op_threads=1),
        4: ExecutionMode(compiler="graph", executor="default", intra_op_threads=2),
    }
    loaded = LoadedModel.load(write_artifact(lambda x, s: {"x": x * 2, "s": s}, IDENTITY, mode=modes.__getitem__))
    assert len(loaded._sessions) == 2
    for bucket in (1, 4):
        assert runner(loaded).run(batch_of(bucket, rows(3)))[0][0].tolist() == [6.0] * 3
    loaded.close()
    assert loaded.groups == {}


#: In a process of its own: one that has run other tests has free memory everywhere, which loads then settle in.
LOADS = """
import ctypes, gc, sys
from pathlib import Path
from server.engine import LoadedModel
gc.freeze()  # What imports have made stays: to look through it each time takes most of the time.
for _ in range(24):
    LoadedModel.load(Path(sys.argv[1])).close()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    print(int(Path("/proc/self/statm").read_text().split()[1]) * 4096, flush=True)
"""


def test_unloading_gives_the_memory_back(write_artifact: WriteArtifact) -> None:
    weights = tf.Variable(tf.random.normal([4096, 1024]))  # 16 MiB
    signature = ModelSignature(inputs=tensors(x=("float32", (4096,))), outputs=tensors(y=("float32", (1024,))))
    artifact = write_artifact(lambda x: {"y": x @ weights}, signature, variables=[weights])
    done = subprocess.run([sys.executable, "-c", LOADS, str(artifact)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sizes = [int(line) for line in done.stdout.split()]
    # glibc keeps the freed top of each of its arenas, and a session's threads may take a new one: 8 for each core.
    # After that it is flat: six loads keep less than one copy of the weights.
    assert sizes[-1] - sizes[-7] < 12 * 2**20, [size // 2**20 for size in sizes]


def test_invariant_mode_serves_from_the_buckets_that_agree_and_says_which(write_artifact: WriteArtifact) -> None:
    artifact = write_artifact(
        lambda x, s: {"x": tf.identity(x), "s": tf.identity(s)},
        IDENTITY,
        buckets=(1, 4, 16),
        bitwise_groups=[[(4,), (16,)]],
    )
    loaded = LoadedModel.load(artifact, invariant=True)
    assert loaded.invariant_buckets == {"predict": [(4,), (16,)]}
    assert sorted(runner(loaded).costs_s) == [4, 16]
    loaded.close()
    free = LoadedModel.load(artifact)
    assert free.invariant_buckets is None
    free.close()
    with pytest.raises(ArtifactRefused, match="can serve in invariant mode; register"):
        LoadedModel.load(artifact, invariant=True, batch_limit=2).close()
