"""What an operator is told of the server as a whole, over parts that a test sets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from prometheus_client import generate_latest
from pydantic import SecretStr

from server.metrics import Metrics
from server.processes import ProcessTable
from server.request_counts import RequestCounts
from server.rights import AuditLog, AuditRecord
from server.server_state import ServerState, settings_sha256
from server.settings import Settings
from server.store.records import State
from tests.web.scripted import ScriptedCatalog
from tests.web.scripted_model import ScriptedModel


class Part:
    def __init__(self, **told: Any) -> None:
        self.told = told

    def status(self) -> dict[str, Any]:
        return self.told


class Hosting:
    """The part of ``Host`` that is asked."""

    def queue_limits(self) -> Iterator[tuple[str, int, int]]:
        yield "sum", 3, 4_096

    def queue_bytes(self) -> tuple[int, float]:
        return 12, 100.0

    def devices(self) -> list[str] | None:
        return ["/device:CPU:0"]

    def waiting_rows(self) -> Iterator[tuple[str, int, str, int]]:
        yield "sum", 3, "predict", 5
        yield "sum", 3, "gradient", 2


@pytest.fixture
def catalog(tmp_path: Path) -> ScriptedCatalog:
    made = ScriptedCatalog(tmp_path)
    made.add("sum", 1, State.FAILED)
    made.add("sum", 2, State.FAILED)
    made.serve(ScriptedModel("sum", 3))
    made.add("other", 1, State.BUILDING)
    made.set_labels["stable"] = 3
    return made


def state_of(catalog: ScriptedCatalog, settings: Settings, **parts: Any) -> ServerState:
    given: dict[str, Any] = {
        "jail": Part(mode="auto"),
        "store": Part(models=2),
        "processes": lambda: ProcessTable(pids={"engine": os.getpid(), "worker 1": 2**22 + 1}, restarts={"engine": 2}),
        "n_audit_failures": lambda: 7,
        **parts,
    }
    return ServerState(settings=lambda: settings, catalog=catalog, host=Hosting(), **given)  # type: ignore[arg-type]


def scraped(state: ServerState) -> dict[str, str]:
    metrics = Metrics(process=False)
    metrics.states.look = state.states
    metrics.before_scrape_on_a_thread(state.look)
    lines = asyncio.run(metrics.scrape()).body.decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))  # type: ignore[misc]


def test_a_scrape_tells_states_limits_space_and_processes(catalog: ScriptedCatalog, tmp_path: Path) -> None:
    found = scraped(state_of(catalog, Settings(store=tmp_path)))
    assert found["rowwise_ready"] == "1.0"
    assert found['rowwise_versions{model="sum",state="FAILED"}'] == "2.0"
    assert found['rowwise_versions{model="sum",state="AVAILABLE"}'] == "1.0"
    assert found['rowwise_versions{model="other",state="BUILDING"}'] == "1.0"
    assert found['rowwise_active_version{model="sum"}'] == "3.0"
    assert 'rowwise_active_version{model="other"}' not in found
    assert found['rowwise_queue_limit_rows{model="sum",version="3"}'] == "4096.0"
    assert (found["rowwise_queue_bytes"], found["rowwise_queue_limit_bytes"]) == ("12.0", "100.0")
    assert 0 < float(found["rowwise_store_free_bytes"]) < float(found["rowwise_store_size_bytes"])
    assert found["rowwise_audit_log_failures_total"] == "7.0"
    assert found['rowwise_process_restarts_total{process="engine"}'] == "2.0"
    assert float(found['rowwise_process_resident_bytes{process="engine"}']) > 2**20
    # One that has ended has nothing to show.
    assert 'rowwise_process_resident_bytes{process="worker 1"}' not in found
    assert "rowwise_tls_certificate_expiry_seconds" not in found


def test_a_server_that_is_not_ready_or_whose_store_is_gone_still_tells(
    catalog: ScriptedCatalog, tmp_path: Path
) -> None:
    catalog.not_ready.append("model 'sum': it is being loaded")
    found = scraped(state_of(catalog, Settings(store=tmp_path / "gone")))
    assert found["rowwise_ready"] == "0.0"
    assert "rowwise_store_free_bytes" not in found


def test_the_end_of_the_certificate_is_told(catalog: ScriptedCatalog, tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    trustme.CA().issue_cert("a.example.org").private_key_and_cert_chain_pem.write_to_path(path)
    state = state_of(catalog, Settings(store=tmp_path, tls_certificate=path))
    ends_s = float(scraped(state)["rowwise_tls_certificate_expiry_seconds"])
    told = asyncio.run(state.status(lambda _: True))
    assert told["tls_certificate_ends_s"] == ends_s > 1.7e9


def test_status_has_what_the_manual_lists(catalog: ScriptedCatalog, tmp_path: Path) -> None:
    told = asyncio.run(state_of(catalog, Settings(store=tmp_path)).status(lambda _: True))
    page = (Path(__file__).resolve().parents[1] / "docs" / "observing.md").read_text().split("## Status")[1]
    documented = {
        name.strip("` ")
        for line in page.splitlines()
        if line.startswith("| `")
        for name in line.split("|")[1].split(",")
    }
    assert told.keys() == documented
    assert told["models"]["sum"] == {
        "active_version": 3,
        "versions": {"AVAILABLE": 1, "FAILED": 2},
        "labels": {"stable": 3},
        "queue_rows": 7,
    }
    assert told["processes"]["engine"]["pid"] == os.getpid()
    assert told["processes"]["engine"]["restarts"] == 2
    assert told["processes"]["worker 1"] == {"pid": 2**22 + 1, "restarts": 0}
    assert told["limits"]["max_body_bytes"] == 64 * 2**20
    assert told["devices"] == ["/device:CPU:0"]
    assert told["uptime_s"] > 0


def test_models_out_of_reach_are_left_out(catalog: ScriptedCatalog, tmp_path: Path) -> None:
    told = asyncio.run(state_of(catalog, Settings(store=tmp_path)).status(lambda name: name == "other"))
    assert list(told["models"]) == ["other"]


def test_settings_have_a_hash_that_tells_nothing_of_tokens() -> None:
    plain, other = Settings(), Settings(queue_rows=7)
    assert settings_sha256(plain) == settings_sha256(Settings())
    assert settings_sha256(plain) != settings_sha256(other)
    assert settings_sha256(Settings(token=SecretStr("a"))) == settings_sha256(Settings(token=SecretStr("b")))


def test_lines_that_the_audit_log_lacks_are_counted() -> None:
    counts = RequestCounts()
    log = AuditLog(Path("/dev/full"), on_failure=counts.audit_failures)
    record = AuditRecord(who="ci", what="PUT", request_id="1", host=None)
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(log.asked(record))
    log.refused(record, "403")
    log.close()
    assert counts.n_audit_failures() == 2
    assert counts.sums() == {}, "they are no requests"


def test_nothing_is_exported_before_there_is_something_to_look_at() -> None:
    text = generate_latest(Metrics(process=False).registry).decode()
    assert "rowwise_ready" not in text
    assert "_created" not in text
