from __future__ import annotations

import io
import json
import math

import httpx
import numpy as np
import pytest

import rowwise
from rowwise.errors import (
    BadAnswer,
    BuildFailed,
    ConnectionFailed,
    InvalidRequest,
    NotFound,
    Overloaded,
    Superseded,
    TimedOut,
    Unauthorized,
    WrongInputs,
)


@pytest.fixture
def archive(tmp_path):
    """An archive that goes up as it is, so that these tests trace nothing."""
    path = tmp_path / "model.tar.gz"
    path.write_bytes(b"packed" * 40_000)
    return path


def failing_with(error: Exception) -> rowwise.Client:
    def handle(request: httpx.Request) -> httpx.Response:
        raise error

    return rowwise.Client("http://rowwise.test", transport=httpx.MockTransport(handle))


def test_a_model_with_one_output_answers_a_bare_array_of_its_dtype(client):
    answer = client.predict("double", x=np.array([[0.1, 2.0]], np.float32))

    assert answer.dtype == np.float32
    np.testing.assert_array_equal(answer, np.array([[0.2, 4.0]], np.float32))


def test_the_only_input_travels_bare_and_the_deadline_with_it(client, server):
    client.predict("double", x=1.5)

    _, path, headers, body = server.requests[-1]
    assert (path, json.loads(body)) == ("/v1/models/double:predict", {"instances": [1.5]})
    assert headers["x-request-timeout-ms"] == "30000"


def test_a_model_with_several_outputs_answers_a_dict(client):
    answer = client.predict("describe", text="ab", times=2)

    assert answer["upper"].item() == "ABAB"
    assert answer["count"].dtype == np.int64
    assert answer["count"] == 2


def test_many_examples_go_in_parts_and_come_back_in_order(client, server):
    examples = [{"x": np.full(length, 1.0)} for length in range(1, 8)]

    answers = client.predict_many("double", iter(examples), n_per_request=3)

    assert [answer.tolist() for answer in answers] == [[2.0] * length for length in range(1, 8)]
    assert [len(json.loads(r[3])["instances"]) for r in server.requests if r[0] == "POST"] == [3, 3, 1]


def test_bare_examples_do_where_a_model_has_one_input_and_a_version_can_be_named(client, server):
    assert client.predict_many("double", [1.0, 2.0], version=2) == [2.0, 4.0]
    assert server.paths()[-1] == "POST /v1/models/double/versions/2:predict"

    with pytest.raises(WrongInputs, match="expected a dict with 'text', 'times'"):
        client.predict_many("describe", ["bare"])


def test_no_examples_ask_nothing(client, server):
    assert client.predict_many("double", []) == []
    assert server.requests == []


def test_metadata_is_asked_once_for_each_model(client, server):
    for _ in range(3):
        client.predict("double", x=1.0)

    assert server.paths().count("GET /v1/models/double/metadata") == 1


def test_not_a_number_and_infinities_travel_both_ways(client):
    answer = client.predict("double", x=np.array([math.nan, math.inf, -math.inf, 1.0], np.float32))

    np.testing.assert_array_equal(answer, np.array([math.nan, math.inf, -math.inf, 2.0], np.float32))


def test_inputs_of_another_name_are_refused_by_name(client):
    with pytest.raises(WrongInputs, match="example 0 of model 'double': expected 'x', got 'y'"):
        client.predict("double", y=1.0)
    with pytest.raises(WrongInputs, match="expected 'text', 'times', got 'text'"):
        client.predict("describe", text="a")


def test_a_version_that_was_switched_in_meanwhile_is_learned_of_by_its_answers(client, server):
    client.predict("double", x=1.0)
    server.output_dtype = "DT_INT32"
    server.script.append((200, {}, b'{"predictions": ["not a float"]}'))

    answer = client.predict("double", x=2)

    assert answer.dtype == np.int32
    assert answer == 4


def test_values_of_another_dtype_than_announced_are_a_bad_answer(client, server):
    server.output_dtype = "DT_INT32"

    with pytest.raises(BadAnswer, match="prediction 0 of model 'double': the server announced int32"):
        client.predict("double", x=0.25)


def test_a_refused_request_is_sent_once(client, server):
    client.predict("double", x=1.0)

    with pytest.raises(InvalidRequest, match="input 'x' of instance 0") as caught:
        client.predict("double", x="text")

    assert caught.value.status == 400
    assert server.paths().count("POST /v1/models/double:predict") == 2


def test_registering_waits_until_the_version_is_available(client, server, archive):
    status = client.register("fresh", archive, inputs={"x": np.zeros((2, 3), np.int32)}, max_batch=16)

    assert (status.model, status.version, status.state) == ("fresh", 7, "AVAILABLE")
    assert server.paths() == ["PUT /v1/models/fresh", *["GET /v1/models/fresh/versions/7/status"] * 4]
    parts = server.last_parts()
    assert list(parts) == ["spec", "archive"]
    assert json.loads(parts["spec"][1]) == {"inputs": {"x": {"dtype": "int32", "shape": [2, 3]}}, "max_batch": 16}
    assert parts["archive"] == ("model.tar.gz", archive.read_bytes())


def test_probe_examples_may_hold_arrays_and_bytes(client, server, archive):
    client.register("fresh", archive, examples=[{"x": np.array([1.5, 2.5]), "raw": b"\xff"}], labels={"team": "a"})

    spec = json.loads(server.last_parts()["spec"][1])
    assert spec == {"examples": [{"x": [1.5, 2.5], "raw": {"b64": "/w=="}}], "labels": {"team": "a"}}


def test_a_failed_build_raises_with_the_servers_reason(client, server, archive):
    server.states = [{"state": "BUILDING"}, {"state": "FAILED", "reason": "op Unique (a.py:3) has no converter"}]

    with pytest.raises(BuildFailed, match=r"model 'fresh' version 7 .*a\.py:3") as caught:
        client.register("fresh", archive)

    assert caught.value.reason == "op Unique (a.py:3) has no converter"


def test_a_version_that_another_one_replaced_is_superseded(client, server, archive):
    server.states = [{"state": "UNLOADED"}]

    with pytest.raises(Superseded, match="another version took over"):
        client.register("fresh", archive)


def test_the_token_goes_to_the_server_alone_whatever_host_the_status_url_names(server, archive):
    hosts = []

    def handle(request: httpx.Request) -> httpx.Response:
        hosts.append((request.url.host, request.headers.get("authorization")))
        headers = {key.lower(): value for key, value in request.headers.items()}
        status, more, body = server.answer(request.method, request.url.path, headers, request.read())
        return httpx.Response(status, headers=more, content=body)

    server.token = "secret"
    server.status_host = "http://elsewhere.test:99"
    with rowwise.Client("http://rowwise.test", "secret", transport=httpx.MockTransport(handle)) as client:
        client.register("fresh", archive)

    assert set(hosts) == {("rowwise.test", "Bearer secret")}


def test_a_server_side_import_is_asked_for_as_json(client, server):
    status = client.register_import("digits", "models.digits:predict", max_batch=8)

    assert status.state == "AVAILABLE"
    assert json.loads(server.requests[0][3]) == {"import_path": "models.digits:predict", "max_batch": 8}


def test_source_text_goes_up_with_its_weights_and_nothing_of_it_runs_here(client, server):
    text = "raise RuntimeError('it ran')\n"

    status = client.register(
        "scored", source=text, weights={"w": np.ones(3)}, function="score", inputs={"x": np.zeros(3)}, max_batch=4
    )

    assert status.state == "AVAILABLE"
    form = server.last_parts()
    assert form["source"][1].decode() == text
    assert form["function"][1] == b"score"
    assert json.loads(form["spec"][1]) == {"inputs": {"x": {"dtype": "float64", "shape": [3]}}, "max_batch": 4}
    with np.load(io.BytesIO(form["weights"][1])) as loaded:
        np.testing.assert_array_equal(loaded["w"], np.ones(3))


def test_a_registration_has_a_target_or_a_source(client, archive, server):
    for options in ({}, {"target": archive, "source": "x = 1"}, {"target": archive, "weights": {}}):
        with pytest.raises(WrongInputs, match="register:"):
            client.register("m", **options)
    with pytest.raises(WrongInputs, match="got Python objects"):
        client.register("m", source="x = 1", weights={"w": object()})
    assert server.requests == []


def test_a_taken_registration_without_a_status_url_is_a_bad_answer(client, server, archive):
    server.script.append((202, {}, b'{"model": "fresh"}'))

    with pytest.raises(BadAnswer, match="no status_url"):
        client.register("fresh", archive)


def test_models_are_listed_with_their_states(client):
    double, ranker = client.models()

    assert (double.model, double.version, double.active, double.state) == ("double", 2, True, "AVAILABLE")
    assert (ranker.state, ranker.reason) == ("FAILED", "op Unique [Unique] has no converter")


def test_certificate_and_costs_are_those_of_the_active_version(client, server):
    assert client.certificate("double")["function"] == "predict"
    assert client.costs("double", 2)["entries"]["predict"]
    with pytest.raises(NotFound, match="'ranker' has no active version"):
        client.certificate("ranker")


def test_activating_and_deleting_name_the_version(client, server):
    client.activate("double", 2)
    client.delete("double", 2)
    client.delete("double")

    assert server.paths() == [
        "POST /v1/models/double/versions/2:activate",
        "DELETE /v1/models/double/versions/2",
        "DELETE /v1/models/double",
    ]


def test_a_server_that_is_not_ready_says_so_without_an_error(client, server):
    assert client.ready()
    server.script.append((503, {}, b'{"error": "draining"}'))
    assert not client.ready()


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a b", "é?#"])
def test_whatever_a_name_holds_it_stays_one_path_segment(client, server, name):
    with pytest.raises(NotFound):
        client.predict(name, x=1.0)

    path = server.requests[0][1]
    assert path.startswith("/v1/models/")
    assert path.endswith("/metadata")
    assert path.count("/") == 4


def test_a_missing_token_is_unauthorized(client, server):
    server.token = "secret"

    with pytest.raises(Unauthorized, match="a token is needed") as caught:
        client.models()
    assert caught.value.status == 401


def test_an_overloaded_server_says_when_to_come_back(client, server):
    server.script.append((429, {"Retry-After": "3"}, b'{"error": "the queue of model \'double\' is full"}'))

    with pytest.raises(Overloaded, match="queue of model 'double' is full") as caught:
        client.predict("double", x=1.0)
    assert caught.value.retry_after_s == 3.0


def test_an_error_that_is_not_ours_is_quoted(client, server):
    server.script.append((502, {}, b"<html>Bad\n  gateway</html>"))

    with pytest.raises(rowwise.ServerFailed, match="HTTP 502 Bad Gateway: <html>Bad gateway</html>"):
        client.models()


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[]", b'{"models": 3}', b'{"models": [{"model": "a"}]}'])
def test_an_answer_of_another_kind_of_server_is_a_bad_answer(client, server, body):
    server.script.append((200, {}, body))

    with pytest.raises(BadAnswer):
        client.models()


def test_every_failure_of_the_transport_has_a_class_of_ours():
    def subclasses(kind):
        for each in kind.__subclasses__():
            yield each
            yield from subclasses(each)

    kinds = list(subclasses(httpx.TransportError))
    assert len(kinds) > 8
    for kind in kinds:
        expected = TimedOut if issubclass(kind, httpx.TimeoutException) else ConnectionFailed
        with failing_with(kind("broken")) as client, pytest.raises(expected):
            client.models()


def test_nobody_listening_is_a_failed_connection(unused_port):
    with (
        rowwise.Client(f"http://127.0.0.1:{unused_port}") as client,
        pytest.raises(ConnectionFailed, match="is the server running there"),
    ):
        client.models()


@pytest.fixture
def unused_port():
    import socket

    with socket.socket() as bound:  # bound but not listening: a connection is refused
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://host", "http://", "http://host:port"])
def test_what_is_no_url_is_refused_with_an_example(url):
    with pytest.raises(ConnectionFailed, match="http://127"):
        rowwise.Client(url)


def test_an_upload_over_a_socket_carries_its_length_and_arrives_whole(server, url, archive):
    with rowwise.Client(url, progress=False) as client:
        status = client.register("fresh", archive)
        answer = client.predict("double", x=[1, 2])

    assert status.state == "AVAILABLE"
    assert server.last_parts()["archive"] == ("model.tar.gz", archive.read_bytes())
    assert answer.tolist() == [2.0, 4.0]
