"""The allow-list against the TensorFlow that is installed, and against what the vectorizer makes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session

from server.graph_checks.conditions import CONDITIONS
from server.graph_checks.op_families import Judgement, op_families
from vectorizer.converters import converters

OPS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "ops.md"


def ops_of_tensorflow() -> dict[str, Any]:
    listed = pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())
    return {op.name: op for op in op_def_pb2.OpList.FromString(listed).op}


def allowed() -> set[str]:
    return {op for op, family in op_families().items() if family.judgement is Judgement.ALLOWED}


def test_each_op_of_this_tensorflow_is_in_one_family_and_each_family_has_only_such() -> None:
    there = {name for name in ops_of_tensorflow() if not name.startswith("_")}
    assert len(there) > 1_500
    assert sorted(there - op_families().keys()) == [], "new ops: read their kernels, then put them into ops.toml"
    assert sorted(op_families().keys() - there) == [], "not in this TensorFlow"


def test_every_refusal_says_why_and_what_to_do() -> None:
    for family in op_families().values():
        assert family.reason
        assert bool(family.next_step) == (family.judgement is not Judgement.ALLOWED), family.name


def test_no_allowed_op_takes_the_name_of_a_file_or_of_a_machine() -> None:
    told = re.compile(
        r"file(name|_pattern)?s?$|path$|directory|address|url|host$|^target$|memory_region", re.IGNORECASE
    )
    suspects = {
        (name, part.name)
        for name, op in ops_of_tensorflow().items()
        if name in allowed()
        for part in (*op.input_arg, *op.attr)
        if told.search(part.name)
    }
    held = {("FixedUnigramCandidateSampler", "vocab_file")}
    made_up = {("ShardedFilename", "filename"), ("ShardedFilespec", "filename")}
    assert suspects - made_up == held
    assert {op for op, _ in held} <= CONDITIONS.keys()


@pytest.mark.parametrize(
    "op",
    ["PyFunc", "ReadFile", "WriteFile", "SaveV2", "RestoreV2", "ImmutableConst", "Send", "RpcCall", "TFRecordDataset",
     "PrintV2", "XlaCustomCallV2", "DebugIdentityV3", "Abort", "IteratorGetNext", "GetSessionTensor"],
)  # fmt: skip
def test_what_reaches_out_is_not_allowed(op: str) -> None:
    assert op not in allowed()


def test_what_the_vectorizer_takes_and_makes_is_allowed() -> None:
    page = OPS_PAGE.read_text()
    vectorized = set(re.findall(r"^\| `(\w+)`", page.split("(looped-by-permission)=")[0], re.MULTILINE))
    assert len(vectorized) > 400
    assert sorted((vectorized | converters().keys()) - allowed()) == []


def test_random_ops_and_control_flow_are_allowed_in_every_version() -> None:
    families = op_families()
    for op in (
        "If",
        "StatelessIf",
        "While",
        "StatelessWhile",
        "Switch",
        "Enter",
        "RandomUniform",
        "StatelessRandomUniformV2",
    ):
        assert families[op].judgement is Judgement.ALLOWED
    assert families["AssignVariableOp"].writes
    assert not families["ReadVariableOp"].writes
    assert tf.version.VERSION.startswith("2.21")
