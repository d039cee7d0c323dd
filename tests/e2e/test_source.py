"""A function that comes as source text with its weights, through the real server, its jail and back."""

from __future__ import annotations

import httpx
import numpy as np
import pytest
from server_process import ServerProcess

import rowwise

pytestmark = pytest.mark.e2e

SCORER = """
import tensorflow as tf

def score(x):
    y = tf.linalg.matvec(weights["w"], x)
    if tf.reduce_sum(x) > 0:
        y = y * weights["scale"]
    return y
"""


def test_source_text_with_weights_is_built_in_the_jail_and_answers(server: ServerProcess) -> None:
    jail = httpx.get(server.url + "/v1/status", timeout=60).json()["jail"]
    if jail["missing"]:
        pytest.skip(f"this machine has no whole jail, without which no source is run: {jail['missing']}")
    weights = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "scale": np.float32(3)}
    examples = np.array([[1, 2, 3], [-1, -2, -3], [0.5, 0, 0]], np.float32)
    with rowwise.Client(server.url, timeout_s=60, progress=False) as client:
        inputs = {"x": {"dtype": "float32", "shape": [3]}}
        client.register("scorer", source=SCORER, weights=weights, function="score", inputs=inputs, buckets=[1, 4])
        answers = client.predict_many("scorer", list(examples))
        kept = client.certificate("scorer")
    expected = [weights["w"] @ x * (weights["scale"] if x.sum() > 0 else 1) for x in examples]
    np.testing.assert_allclose(answers, expected, rtol=1e-5)
    # The caller's own lines, of a file that is nowhere else.
    assert "source.py:" in str(kept)
    assert (server.store / "models" / "scorer" / "1" / "artifact" / "source.py").read_text() == SCORER


def test_a_fault_in_a_text_is_told_by_its_line_and_without_a_path_of_the_server(server: ServerProcess) -> None:
    text = "import tensorflow as tf\ndef predict(x):\n    return tf.reshape(x, [7])\n"
    message = {"source": text, "inputs": {"x": {"dtype": "float32", "shape": [3]}}}
    answer = httpx.put(server.url + "/v1/models/faulty?wait=true", json=message, timeout=300)
    assert answer.status_code in {400, 503}
    if answer.status_code == 400:
        assert 'source.py", line 3' in answer.json()["error"]
        assert str(server.store) not in answer.text
