"""What a running server shows of itself, to Prometheus, in its log, and in traces: all of it, and nothing of any input.

One server of several processes, whose predictions are protected, with a model that fails on what it can't read.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc
from server_process import ServerProcess

from loadtests.ports import free_port
from server.rights import TokenEntry, add_token, digest_of
from tests.deploy.metrics import metrics_of_exposition, metrics_of_page
from tests.deploy.test_dashboard import queries
from tests.web.collector import Collector, attributes

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SOURCE = """
import tensorflow as tf

def number(text):
    return tf.strings.to_number(text)
"""
PREDICT = "/v1/models/number:predict"
INFER = "/v2/models/number/infer"
#: What no log may hold, and no metric, status or span. Callers send it wherever an input has a place.
MARKER = "zq7marker"
ADMIN, SCRAPER = {"Authorization": "Bearer admin"}, {"Authorization": "Bearer scraper"}
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def until(holds: Callable[[], object], *, timeout_s: float = 120.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.2)
    return found


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.answers.set()
    running.close()


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("observed")
    tokens = directory / "tokens.toml"
    for name, scopes in (("admin", ["predict", "manage"]), ("scraper", ["read"])):
        entry = {"name": name, "sha256": digest_of(name.encode()).hex(), "scopes": scopes}
        add_token(tokens, TokenEntry.model_validate(entry))
    options = (
        "--http-workers", "1", "--grpc-port", str(free_port()), "--allow-source", "--allow-unjailed-source",
        "--tokens-file", str(tokens), "--audit-log", str(directory / "audit.jsonl"),
        "--log-level", "debug", "--log-format", "json", "--access-log", "--otlp-endpoint", collector.url,
    )  # fmt: skip
    with ServerProcess(directory / "store", *options) as running:
        running.wait_ready()
        message = {
            "source": SOURCE,
            "function": "number",
            "inputs": {"text": {"dtype": "string", "shape": []}},
            "buckets": [1, 4],
            "examples": [{"text": "1.5"}, {"text": "-2"}],
        }
        answer = httpx.put(running.url + "/v1/models/number?wait=true", json=message, headers=ADMIN, timeout=300)
        assert answer.json()["state"] == "AVAILABLE", answer.text
        traffic(running)
        yield running


def traffic(server: ServerProcess) -> None:
    """Ask in every protocol, rightly and wrongly, with the marker wherever there is room for it."""
    with httpx.Client(base_url=server.url, headers=ADMIN, timeout=60) as http:

        def ask(path: str, content: Any, number: int, **headers: str) -> int:
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            return http.post(path, content=body, headers={"X-Request-Id": f"asked-{number}", **headers}).status_code

        answered = {
            1: ask(PREDICT, {"instances": ["1.5", "2"]}, 1, traceparent=TRACEPARENT),
            # What it raises quotes the input.
            2: ask(PREDICT, {"instances": ["1.5", MARKER]}, 2),
            3: ask(PREDICT, f'{{"instances": ["{MARKER}"'.encode(), 3),
            4: ask(PREDICT, {"instances": [{MARKER: "1"}]}, 4),
            5: ask(PREDICT, {"instances": [[MARKER]]}, 5),
            6: ask(PREDICT, {"inputs": {"text": [MARKER, 7]}}, 6),
            7: ask(PREDICT, {"instances": [{"b64": base64.b64encode(MARKER.encode()).decode()}]}, 7),
            8: ask(PREDICT, {"instances": ["1"], "signature_name": MARKER}, 8),
            9: ask(INFER, {"inputs": [{"name": MARKER, "shape": [1], "datatype": "BYTES", "data": [MARKER]}]}, 9),
            10: ask(INFER, {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [MARKER]}]}, 10),
            11: ask(INFER, MARKER.encode() * 10, 11, **{"Inference-Header-Content-Length": "7"}),
            12: ask(PREDICT + f"?{MARKER}=1", {"instances": ["3"]}, 12),
            13: ask(PREDICT, {"instances": ["4"]}, 13, **{"Content-Encoding": MARKER}),
            14: ask("/v1/models/nobody:predict", {"instances": [MARKER]}, 14),
        }
    assert answered[1] == answered[12] == 200
    assert {answered[n] for n in (3, 4, 5, 6, 8, 9, 11)} == {400}
    assert all(400 <= answered[n] < 500 for n in (2, 7, 10)), answered
    assert (answered[13], answered[14]) == (415, 404)
    tensor = tritonclient.grpc.InferInput("text", [1], "BYTES")
    with tritonclient.grpc.InferenceServerClient(server.grpc_address) as client:
        for text in (b"5", MARKER.encode()):
            tensor.set_data_from_numpy(np.array([text], object))
            headers = {"authorization": "Bearer admin", "x-secret": MARKER, "x-request-id": "asked-20"}
            fails = nullcontext() if text == b"5" else pytest.raises(tritonclient.grpc.InferenceServerException)
            with fails:
                client.infer("number", [tensor], headers=headers)


def test_no_line_of_the_log_holds_an_input_and_each_request_is_there_by_its_id(observed: ServerProcess) -> None:
    log = observed.log
    assert MARKER not in log
    assert base64.b64encode(MARKER.encode()).decode() not in log
    assert "Bearer" not in log
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert {"supervisor", "engine", "worker 1"} <= {line.get("process") for line in lines}
    assert any(line["level"] == "debug" for line in lines)
    logged = {line.get("request_id"): line for line in lines if line["logger"] == "rowwise.access"}
    assert {f"asked-{n}" for n in (*range(1, 15), 20)} <= logged.keys()
    # Where it came in, and not again where it was answered.
    assert [line["process"] for line in lines if line.get("path") == "/v1/models/number"] == ["worker 1"]
    assert logged["asked-20"]["process"] == "engine", "gRPC's port is the engine's"
    assert logged["asked-1"]["status"] == 200
    assert logged["asked-1"]["path"] == PREDICT
    assert logged["asked-3"]["status"] == 400
    assert logged["asked-1"]["duration_ms"] > 0
    audit = (observed.store.parent / "audit.jsonl").read_text()
    assert "PUT /v1/models/{model}" in audit
    assert MARKER not in audit


def test_what_is_exposed_is_what_the_manual_lists(observed: ServerProcess) -> None:
    text = httpx.get(observed.url + "/metrics", headers=SCRAPER).text
    assert MARKER not in text
    exposed, page = metrics_of_exposition(text), metrics_of_page()
    # It speaks no TLS.
    assert exposed.keys() == page.keys() - {"rowwise_tls_certificate_expiry_seconds"}
    for name, metric in exposed.items():
        assert metric.kind == page[name].kind, name
        assert metric.meaning == page[name].meaning, name
        # Families that have counted nothing yet have no labels to show.
        assert metric.labels in {page[name].labels, frozenset()}, name
    for name, process in (("rowwise_process_resident_bytes", "worker 1"), ("rowwise_process_restarts_total", "engine")):
        assert f'{name}{{process="{process}"}}' in text
    assert re.search(
        r'rowwise_requests_total\{code="400",entry="predict",model="number",reason="\w+",version="1"\}', text
    )
    assert 'rowwise_request_seconds_count{entry="predict",model="number",version="1"}' in text


def test_promtool_finds_no_fault_in_the_exposition(observed: ServerProcess) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: scripts/install-debian-packages.sh")
    text = httpx.get(observed.url + "/metrics", headers=SCRAPER).text
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_scrapes_with_its_token_and_answers_every_query_of_the_dashboard(
    observed: ServerProcess, tmp_path: Path
) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed: scripts/install-debian-packages.sh")
    target = observed.url.removeprefix("http://")
    (tmp_path / "token").write_text("scraper")
    config = tmp_path / "prometheus.yml"
    rules = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "alerts.yml"
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(rules)],
                "scrape_configs": [
                    {
                        "job_name": "rowwise",
                        "authorization": {"credentials_file": str(tmp_path / "token")},
                        "static_configs": [{"targets": [target]}],
                    },
                    {"job_name": "stranger", "static_configs": [{"targets": [target]}]},
                ],
            }
        )
    )
    options = (
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        "--web.listen-address=127.0.0.1:0",
    )
    said = tmp_path / "log"
    with (
        said.open("wb") as log,
        subprocess.Popen([program, *options], stdout=log, stderr=log) as process,
        httpx.Client(timeout=60) as http,
    ):
        try:
            listens = until(lambda: re.search(r'"Listening on" address=(\S+)', said.read_text()))
            http.base_url = f"http://{listens[1]}"

            def ask(query: str) -> list[Any]:
                try:
                    reply = http.get("/api/v1/query", params={"query": query})
                except httpx.TransportError:
                    return []
                if reply.status_code == 503:  # it listens before it has opened its store
                    return []
                answer = reply.json()
                assert answer["status"] == "success", (query, answer)
                result: list[Any] = answer["data"]["result"]
                return result

            until(lambda: ask('count_over_time(up{job="rowwise"}[1m]) >= 2'))
            traffic(observed)
            until(lambda: ask('increase(rowwise_requests_total{code="200"}[1m]) > 0'))
            ups = {found["metric"]["job"]: found["value"][1] for found in ask("up")}
            assert ups == {"rowwise": "1", "stranger": "0"}
            empty = []
            for title, expression in queries():
                if not expression.startswith("label_values"):
                    query = (
                        expression.replace("$__rate_interval", "1m").replace("$model", ".*").replace("$instance", ".*")
                    )
                    if not ask(query):
                        empty.append((title, expression))
            # Nothing speaks TLS here, and no version runs as a shadow.
            assert all("shadow" in query or "certificate" in query for _, query in empty), empty
            state = http.get("/api/v1/rules").json()["data"]["groups"][0]["rules"]
            assert len(state) >= 15
            assert {rule["health"] for rule in state} <= {"ok", "unknown"}
        finally:
            process.terminate()


def test_status_tells_of_every_process_and_holds_no_input(observed: ServerProcess) -> None:
    answer = httpx.get(observed.url + "/v1/status", headers=SCRAPER, timeout=60)
    told = answer.json()
    assert MARKER not in answer.text
    assert set(told["processes"]) == {"supervisor", "engine", "worker 1"}
    assert all(process["resident_bytes"] > 2**20 for process in told["processes"].values())
    assert told["ready"]
    assert told["models"]["number"] == {
        "active_version": 1, "versions": {"AVAILABLE": 1}, "labels": {}, "queue_rows": 0,
    }  # fmt: skip
    assert told["devices"]
    assert told["uptime_s"] > 0
    assert httpx.get(observed.url + "/v1/status").status_code == 401


def test_spans_lead_to_their_batches_and_no_collector_keeps_the_server_from_ending(
    observed: ServerProcess, collector: Collector
) -> None:
    def span_of(request_id: str) -> Any:
        return next((s for s in collector.spans if attributes(s).get("rowwise.request_id") == request_id), None)

    asked = until(lambda: span_of("asked-1"))
    assert asked.trace_id.hex() == TRACEPARENT.split("-")[1]
    assert asked.parent_span_id.hex() == TRACEPARENT.split("-")[2]
    ((trace_id, span_id),) = [(link.trace_id, link.span_id) for link in asked.links]
    batch = until(lambda: next((s for s in collector.spans if s.span_id == span_id), None))
    assert batch.trace_id == trace_id
    assert attributes(batch)["rowwise.rows"] == 2
    assert attributes(batch)["rowwise.batch_id"] == attributes(asked)["rowwise.batch_id"]
    assert attributes(until(lambda: span_of("asked-3")))["http.response.status_code"] == 400
    assert not any(MARKER in str(span) for span in collector.spans)
    # From here on it takes spans and does not answer.
    collector.is_asked.clear()
    collector.answers.clear()
    headers = {**ADMIN, "X-Request-Id": "late"}
    answers = [httpx.post(observed.url + PREDICT, content=b'{"instances": ["1"]}', headers=headers) for _ in range(5)]
    assert {answer.status_code for answer in answers} == {200}
    assert collector.is_asked.wait(60)
    assert observed.terminate() == 0
