"""A SavedModel that TensorFlow itself can't load any more, uploaded and served."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import numpy as np
import pytest
import tensorflow as tf
from server_process import ServerProcess

from rowwise._archive import pack
from tests.vectorizer.old_saved_models import give_optimizer_slots, save_module

pytestmark = [pytest.mark.e2e, pytest.mark.long]


def test_an_upload_with_the_slots_of_an_optimizer_is_built_and_answers(server: ServerProcess, tmp_path: Path) -> None:
    """As Keras 2 wrote them; ``tf.saved_model.load`` fails: no attribute 'add_slot'."""
    module = save_module(tmp_path / "model")
    give_optimizer_slots(tmp_path / "model")
    with pytest.raises(AttributeError, match="add_slot"):
        tf.saved_model.load(str(tmp_path / "model"))
    archive = pack(tmp_path / "model", tmp_path / "model.tar.gz")
    one = {"x": {"dtype": "float32", "shape": [4]}, "word": {"dtype": "string", "shape": []}}
    answer = httpx.put(
        server.url + "/v1/models/old?wait=true",
        files={"archive": ("model.tar.gz", archive.read_bytes())},
        data={"spec": json.dumps({"inputs": one, "buckets": [2]})},
        timeout=300,
    )
    assert answer.status_code < 300, answer.text

    x, words = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32), ["row", "?", "wise"]
    want = {name: value.numpy() for name, value in module.serve(tf.constant(x), tf.constant(words)).items()}
    instances = [{"x": row.tolist(), "word": word} for row, word in zip(x, words, strict=True)]
    answer = httpx.post(server.url + "/v1/models/old:predict", json={"instances": instances})
    assert answer.status_code == 200, answer.text
    for row, got in enumerate(answer.json()["predictions"]):
        for name, values in want.items():
            np.testing.assert_allclose(got[name], values[row], rtol=1e-5)
