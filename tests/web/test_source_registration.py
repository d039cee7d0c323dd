"""Registration by source text: what the web layer takes and hands on, and what it refuses before anything is run."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.build import JailIncomplete
from server.build.source import TextSource
from server.errors import RowwiseError
from server.spec import ModelSpec
from server.web.source_text import MAX_SOURCE_BYTES
from tests.web.scripted import Service

TEXT = "def predict(x):\n    return x + 1\n"


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, w=np.ones(3, np.float32))
    return file.getvalue()


@pytest.fixture
def allowing(tmp_path: Path) -> Service:
    return Service(tmp_path, allow_source=True, max_archive_bytes=10_000)


def put(service: Service, **message: Any) -> Any:
    return service.request("PUT", "/v1/models/sum", json=message)


def test_source_text_is_refused_until_the_operator_allows_it(service: Service) -> None:
    answer = put(service, source=TEXT)
    assert answer.status_code == 403
    assert "--allow-source" in answer.json()["error"]
    form = service.request("PUT", "/v1/models/sum", files={"source": (None, TEXT), "weights": ("w.npz", npz())})
    assert form.status_code == 403
    assert service.catalog.registered == []
    assert list(service.upload_dir.iterdir()) == []


def test_where_the_jail_is_not_whole_the_request_is_refused_and_nothing_is_kept(allowing: Service) -> None:
    allowing.catalog.register_error = JailIncomplete("source text is only run in a whole jail")
    form = {"source": (None, TEXT), "weights": ("w.npz", npz())}
    answers = [put(allowing, source=TEXT), allowing.request("PUT", "/v1/models/sum", files=form)]
    for answer in answers:
        assert (answer.status_code, "whole jail" in answer.json()["error"]) == (501, True)
        assert "retry-after" not in answer.headers, "asking again does not help"
    assert list(allowing.upload_dir.iterdir()) == []


def test_a_text_is_registered_with_its_specification(allowing: Service) -> None:
    inputs = {"x": {"dtype": "float32", "shape": [3]}}
    for message in ({"inputs": inputs, "max_batch": 8}, {"spec": {"inputs": inputs, "max_batch": 8}}):
        assert put(allowing, source=TEXT, **message).status_code == 202
        name, spec, source = allowing.catalog.registered[-1]
        assert (name, source) == ("sum", TextSource(TEXT, "predict", None))
        assert spec == ModelSpec.model_validate({"inputs": inputs, "max_batch": 8})


def test_weights_of_a_json_registration_become_a_file_and_the_function_can_be_named(allowing: Service) -> None:
    answer = put(allowing, source=TEXT, function="score", weights=base64.b64encode(npz()).decode())
    assert answer.status_code == 202
    source = allowing.catalog.registered[-1][2]
    assert isinstance(source, TextSource)
    assert source.function == "score"
    assert source.path is not None
    assert source.path.read_bytes() == npz()


def test_a_form_carries_text_function_weights_and_specification(allowing: Service) -> None:
    files = {
        "spec": (None, '{"max_batch": 2}'),
        "source": (None, TEXT),
        "function": (None, "score"),
        "weights": ("w.npz", npz()),
    }
    assert allowing.request("PUT", "/v1/models/sum", files=files).status_code == 202
    _, spec, source = allowing.catalog.registered[-1]
    assert spec.max_batch == 2
    assert isinstance(source, TextSource)
    assert (source.text, source.function) == (TEXT, "score")
    assert source.path is not None
    assert source.path.read_bytes() == npz()


def test_a_form_without_weights_leaves_no_file(allowing: Service) -> None:
    assert allowing.request("PUT", "/v1/models/sum", files={"source": (None, TEXT)}).status_code == 202
    assert allowing.catalog.registered[-1][2] == TextSource(TEXT, "predict", None)
    assert list(allowing.upload_dir.iterdir()) == []


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("no text", {"source": ""}, 400, "must be the text of a Python module"),
    ("a number", {"source": 7}, 400, "must be the text of a Python module"),
    ("half a character", {"source": "x = '\ud800'"}, 400, "'source' is not Unicode"),
    ("too long", {"source": "#" * (MAX_SOURCE_BYTES + 1)}, 413, f"over the limit of {MAX_SOURCE_BYTES} bytes"),
    ("no name", {"source": TEXT, "function": "a b"}, 400, "'function' must be the name"),
    ("a dotted name", {"source": TEXT, "function": "os.system"}, 400, "'function' must be the name"),
    ("weights that are no base64", {"source": TEXT, "weights": "§"}, 400, "'weights' must be an .npz in base64"),
    ("weights that are a list", {"source": TEXT, "weights": [1]}, 400, "'weights' must be an .npz in base64"),
    ("both", {"source": TEXT, "import_path": "a:b"}, 400, "send one of 'source', 'import_path'"),
    ("a wrong specification", {"source": TEXT, "max_batch": 0}, 400, "spec.max_batch"),
    ("options twice", {"source": TEXT, "spec": {}, "max_batch": 1}, 400, "not both"),
]


@pytest.mark.parametrize(("message", "status", "sentence"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED])
def test_a_wrong_registration_gets_its_code_and_sentence(
    allowing: Service, message: dict[str, Any], status: int, sentence: str
) -> None:
    # As the standard library writes it: it escapes what is no Unicode.
    answer = allowing.request(
        "PUT", "/v1/models/sum", content=json.dumps(message), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == status, answer.text
    assert sentence in answer.json()["error"]
    assert allowing.catalog.registered == []
    assert list(allowing.upload_dir.iterdir()) == []


FORMS: list[tuple[str, list[tuple[str, Any]], int, str]] = [
    ("weights alone", [("weights", ("w", b"x"))], 400, "no part 'archive', or 'source'"),
    ("archive and source", [("archive", ("m", b"x")), ("source", (None, TEXT))], 400, "either 'source' or 'archive'"),
    ("archive and weights", [("archive", ("m", b"x")), ("weights", ("w", b"x"))], 400, "either 'archive' or 'weights'"),
    ("a long source", [("source", (None, b"#" * (MAX_SOURCE_BYTES + 1)))], 413, "the part 'source'"),
    ("long weights", [("source", (None, TEXT)), ("weights", ("w", b"x" * 10_001))], 413, "the weights"),
    ("no text", [("source", (None, b"\xff\xfe"))], 400, "'source' is not UTF-8"),
    ("source twice", [("source", (None, TEXT)), ("source", (None, TEXT))], 400, "more than one part 'source'"),
]


@pytest.mark.parametrize(("parts", "status", "sentence"), [case[1:] for case in FORMS], ids=[case[0] for case in FORMS])
def test_a_wrong_form_gets_its_code_and_sentence_and_leaves_no_file(
    allowing: Service, parts: list[tuple[str, Any]], status: int, sentence: str
) -> None:
    answer = allowing.request("PUT", "/v1/models/sum", files=parts)
    assert answer.status_code == status, answer.text
    assert sentence in answer.json()["error"]
    assert allowing.catalog.registered == []
    assert list(allowing.upload_dir.iterdir()) == []


def test_a_registration_that_the_catalog_refuses_leaves_no_weights(allowing: Service) -> None:
    allowing.catalog.register_error = RowwiseError("no")
    assert put(allowing, source=TEXT, weights=base64.b64encode(npz()).decode()).status_code == 500
    assert list(allowing.upload_dir.iterdir()) == []
