"""The audit log: whole lines, bounded refusals, and nothing done that can't be written."""

from __future__ import annotations

import asyncio
import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from server.rights import AuditLog, AuditRecord


def record(**more: Any) -> AuditRecord:
    return AuditRecord(**{"who": "ci", "what": "PUT /v1/models/{model}", "request_id": "r1", "host": "::1", **more})


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def test_what_is_done_is_written_before_and_after(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit", now_s=lambda: 1.5)
    asyncio.run(log.asked(record(model="m")))
    asyncio.run(log.answered(record(model="m", version=3), "202"))
    one = {"who": "ci", "what": "PUT /v1/models/{model}", "model": "m", "from": "::1", "request_id": "r1"}
    at = "1970-01-01T00:00:01.500Z"
    assert lines(tmp_path / "audit") == [
        {"at": at, "event": "asked", **one},
        {"at": at, "event": "answered", **one, "version": 3, "result": "202"},
    ]
    assert (tmp_path / "audit").stat().st_mode & 0o077 == 0


def test_what_is_asked_is_on_the_disk_before_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AuditLog(tmp_path / "audit")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(len(lines(tmp_path / "audit"))))
    asyncio.run(log.asked(record()))
    assert synced == [1]


def test_a_flood_of_refusals_is_a_bounded_number_of_lines_and_a_count(tmp_path: Path) -> None:
    now_s = 0.0
    log = AuditLog(tmp_path / "audit", clock=lambda: now_s)
    for _ in range(1_000):
        log.refused(record(who="anybody", model="x" * 8_000), "Unauthorized")
    assert len(lines(tmp_path / "audit")) == 100
    assert (tmp_path / "audit").stat().st_size < 100 * 400
    now_s = 60.0
    log.refused(record(), "Unauthorized")
    log.refused(record(), "Unauthorized")
    assert [line.get("left_out") for line in lines(tmp_path / "audit")[-2:]] == [900, None]


def test_a_log_that_was_moved_away_is_opened_anew(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit")
    asyncio.run(log.asked(record()))
    (tmp_path / "audit").rename(tmp_path / "audit.1")
    asyncio.run(log.asked(record()))
    assert len(lines(tmp_path / "audit.1")) == 2
    log.reopen()
    asyncio.run(log.asked(record()))
    assert [len(lines(tmp_path / name)) for name in ("audit.1", "audit")] == [2, 1]


def test_a_line_that_was_cut_off_does_not_spoil_the_next(tmp_path: Path) -> None:
    """A file that may not grow is what a full disk looks like."""
    path = tmp_path / "audit"
    log = AuditLog(path)
    asyncio.run(log.asked(record()))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, hard))
    try:
        with pytest.raises(OSError, match="no room"):
            asyncio.run(log.asked(record()))
        with pytest.raises(OSError, match="too large"):
            asyncio.run(log.asked(record()))
        asyncio.run(log.answered(record(), "202"))  # what was done is done
        log.refused(record(), "Forbidden")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    asyncio.run(log.asked(record(request_id="after")))
    first, torn, after = path.read_text().splitlines()
    assert (json.loads(first)["request_id"], len(torn), json.loads(after)["request_id"]) == ("r1", 20, "after")


def test_names_with_line_breaks_make_no_lines_of_their_own(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit")
    asyncio.run(log.asked(record(model='a\n{"event": "answered"}\u2028')))
    assert [line["event"] for line in lines(tmp_path / "audit")] == ["asked"]
    assert (tmp_path / "audit").read_bytes().isascii()


def test_a_log_that_can_not_be_opened_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="can't be written: No such file"):
        AuditLog(tmp_path / "missing" / "audit")


def test_without_a_path_nothing_depends_on_it() -> None:
    log = AuditLog(None)
    asyncio.run(log.asked(record()))
    asyncio.run(log.answered(record(), "202"))
    log.refused(record(), "Forbidden")
