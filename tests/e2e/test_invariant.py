"""Invariant mode on the real server: under mixed load, and after it was killed and started again."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import httpx
import orjson
import pytest
from server_process import ServerProcess

import models.digits
from loadtests.invariant import ask_at_random, n_differing

pytestmark = pytest.mark.e2e


@pytest.mark.long
@pytest.mark.slow
def test_same_input_gives_different_results(server: ServerProcess, tmp_path: Path) -> None:
    examples = [orjson.dumps(example["image"].tolist()) for example in islice(models.digits.examples(), 20)]
    store = tmp_path / "store"
    shutil.copytree(server.store, store)
    found = []
    for seed in (1, 2):
        with ServerProcess(store, "--invariant") as invariant:
            invariant.wait_ready()
            status = httpx.get(invariant.url + "/v1/models/digits/versions/1/status").json()
            assert status["invariant"]["predict"], "it says which buckets serve"
            path = "/v1/models/digits:predict"
            found.append(ask_at_random(invariant.url, path, examples, n_examples=2_000, callers=8, seed=seed))
            invariant.kill()
    assert all(len(answers) == len(examples) for answers in found)
    assert n_differing(*found) == 0
