"""The files in which a build keeps what it measures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from server.build import candidates
from server.build.candidates import Candidates
from server.build.declaration import Declaration, declaration_of_function
from server.build.forms import Form, forms_of
from server.engine._session import GraphSession
from server.spec import ModelSpec
from vectorizer import Vectorized, vectorize


class PlainModule:
    """A module that says nothing of its functions."""


def declared(buckets: Sequence[int], **options: Any) -> tuple[Vectorized, Declaration, dict[Form, Any]]:
    weights = tf.Variable(tf.range(4.0))
    inputs = {"x": {"dtype": "float32", "shape": [4]}}
    spec = ModelSpec.model_validate({"inputs": inputs, **options})
    declaration = declaration_of_function(lambda x: x * weights, PlainModule, spec)
    vectorized = vectorize(declaration.function, inputs=declaration.inputs, buckets=buckets)
    return vectorized, declaration, forms_of(vectorized)


def signatures(path: Path) -> set[str]:
    return set(tf.saved_model.load(str(path)).signatures)


@pytest.fixture
def few_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_FORMS_EACH", 2)


@pytest.mark.usefixtures("few_each")
def test_many_forms_are_in_several_files_that_hold_them_all_and_run(tmp_path: Path) -> None:
    vectorized, declaration, forms = declared([1, 2, 3])
    written = Candidates.write(vectorized, declaration, forms, tmp_path / "c")
    assert written.paths.keys() == forms.keys()
    paths = list(dict.fromkeys(written.paths.values()))
    assert len(paths) == 3
    for path in paths:
        assert signatures(path) == {form.signature for form in forms if written.paths[form] == path}
    for form, path in written.paths.items():
        session = GraphSession(path, executor="single_threaded", intra_op_threads=1)
        (y,) = session.callable(form.signature, inputs=["x"], outputs=[vectorized.outputs[0].name])(
            tf.ones([form.bucket.rows, 4]).numpy()
        )
        session.close()
        assert y.tolist() == [[0, 1, 2, 3]] * form.bucket.rows
    assert not written.hand_over(set(forms), tmp_path / "final")
    assert not (tmp_path / "c").exists()
    assert not (tmp_path / "final").exists()


@pytest.mark.usefixtures("few_each")
@pytest.mark.parametrize("reason", ["large variables", "many threads", "invariant mode"])
def test_forms_share_a_file_where_copies_cost_memory_or_they_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    if reason == "large variables":
        monkeypatch.setattr(candidates, "_MAX_COPIES_BYTES", 31)
    if reason == "many threads":
        monkeypatch.setattr(candidates, "_MAX_INTER_OP_THREADS", 2)
    vectorized, declaration, forms = declared([1, 2], **({"invariant": True} if reason == "invariant mode" else {}))
    written = Candidates.write(vectorized, declaration, forms, tmp_path / "c")
    assert len(set(written.paths.values())) == 1


def test_one_file_that_holds_what_serves_is_handed_over(tmp_path: Path) -> None:
    vectorized, declaration, forms = declared([1, 2])
    written = Candidates.write(vectorized, declaration, forms, tmp_path / "c")
    assert written.hand_over(set(forms), tmp_path / "final")
    assert signatures(tmp_path / "final") == {form.signature for form in forms}
    assert not written.hand_over(set(forms), tmp_path / "again")
    other = Candidates.write(vectorized, declaration, forms, tmp_path / "d")
    assert not other.hand_over(set(list(forms)[1:]), tmp_path / "again")
    assert not (tmp_path / "d").exists()
