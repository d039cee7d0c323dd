"""``rowwise vectorize`` as a person meets it: without a server, in a process of its own where its screen matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from typer.testing import CliRunner

from rowwise._archive import pack
from rowwise._trace import save_example_function
from rowwise.cli import app

SOURCE = """\
import tensorflow as tf

INPUTS = {"x": tf.TensorSpec([4], tf.float32)}
WEIGHTS = tf.Variable(tf.ones([4, 2]))


def predict(x):
    return tf.nn.softmax(x @ WEIGHTS if x.shape.rank > 1 else (x[None] @ WEIGHTS)[0])


def resized(x):
    return tf.raw_ops.SerializeTensor(tensor=x)  # line 12


def printing(x):
    tf.print(x)  # line 16
    return x
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "scorer.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def run():
    runner = CliRunner(env={"COLUMNS": "160", "TERM": "dumb", "NO_COLOR": "1", "TF_CPP_MIN_LOG_LEVEL": "2"})
    return lambda *arguments: runner.invoke(app, ["vectorize", *map(str, arguments)])


def test_it_prints_certificate_table_and_chart(run, module):
    answer = run(f"{module}:predict", "--bucket", 4, "--bucket", 1)

    assert answer.exit_code == 0, answer.output
    assert "Certificate of predict" in answer.stdout
    assert "0 run once per row" in answer.stdout
    assert "Checked against the function" in answer.stdout
    assert "Measured costs" in answer.stdout
    assert "Time for a row (µs) by batch size" in answer.stdout
    assert answer.stderr == ""


def test_json_holds_both_documents_as_a_server_gives_them(run, module):
    document = json.loads(run(f"{module}:predict", "--max-batch", 4, "--json").stdout)

    assert set(document) == {"certificate", "costs"}
    certificate, costs = document["certificate"], document["costs"]
    assert certificate["function"] == "predict"
    assert certificate["summary"]["looped"] == 0
    assert [record["rows"] for record in certificate["parity"]] == [1, 2, 4]
    assert {entry["rows"] for entry in costs["entries"]["predict"]} == {1, 2, 4}
    places = {op["op"]: op["where"] for op in certificate["ops"]}
    assert places["Softmax"] == ["scorer.py:8"]


def test_a_function_that_would_be_looped_is_refused_with_its_line_unless_it_is_allowed(run, module):
    refused = run(f"{module}:resized", "--bucket", 2)

    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: resized: op SerializeTensor (scorer.py:12) would run once for each row")

    allowed = run(f"{module}:resized", "--bucket", 2, "--allow-looped", "SerializeTensor")

    assert allowed.exit_code == 0, allowed.output
    assert "1 run once per row" in allowed.stdout
    assert "scorer.py:12" in allowed.stdout


def test_an_effect_is_refused_with_its_line(run, module):
    answer = run(f"{module}:printing", "--bucket", 2)

    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "scorer.py:16" in answer.stderr


def test_the_tolerance_is_that_of_the_check(run, module):
    answer = run(f"{module}:predict", "--bucket", 2, "--tolerance", "0.5", "--json")

    assert json.loads(answer.stdout)["certificate"]["tolerance"] == {"float32": 0.5}


@pytest.mark.parametrize("packed", [False, True], ids=["directory", "archive"])
def test_a_saved_model_is_taken_as_a_server_takes_it(run, tmp_path, packed):
    path = tmp_path / "exported"
    save_example_function(lambda x: x * 2.0, {"x": tf.TensorSpec([3])}, path)
    if packed:
        path = pack(path, tmp_path / "exported.tar.gz")

    answer = run(path, "--bucket", 2, "--json")

    assert answer.exit_code == 0, answer.output
    (op,) = (op for op in json.loads(answer.stdout)["certificate"]["ops"] if op["op"] == "Mul")
    (place,) = op["where"]
    assert place.startswith(Path(__file__).name)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("no_such_module_at_all:predict", "there is no module 'no_such_module_at_all'"),
        ("{module}:nothing", "has no 'nothing'"),
        ("{directory}/missing.tar.gz", "no such file or directory"),
        ("{directory}", "neither a SavedModel directory"),
        ("{directory}/damaged.zip", "neither a .tar.gz nor a .zip"),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(run, module, tmp_path, target, sentence):
    (tmp_path / "damaged.zip").write_bytes(b"not a zip")

    answer = run(target.format(module=module, directory=tmp_path))

    assert (answer.exit_code, answer.stdout) == (1, "")
    assert sentence in answer.stderr
    assert answer.stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--bucket", "0"], "--bucket"),
        (["--tolerance", "2"], "tolerance"),
        (["--spec", '{"no_such_option": 1}'], "no_such_option"),
        (["--spec", "[]"], "expected a JSON object"),
    ],
)
def test_a_wrong_option_exits_with_2(run, module, options, sentence):
    answer = run(f"{module}:predict", *options)

    assert (answer.exit_code, answer.stdout) == (2, "")
    assert sentence in answer.stderr


def test_nothing_but_the_reason_is_on_the_screen(module):
    # Without the variables by which the tests, or their runner, quieten TensorFlow themselves.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    finished = subprocess.run(
        [sys.executable, "-m", "rowwise", "vectorize", f"{module}:resized", "--bucket", "2"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=500,
        check=False,
    )

    assert finished.returncode == 1
    assert finished.stdout == ""
    reason, instead, otherwise = finished.stderr.splitlines()
    assert reason.startswith("error: resized: op SerializeTensor (scorer.py:12)")
    assert instead.startswith("  instead: ")
    assert otherwise.endswith("allow_looped=['SerializeTensor']")
