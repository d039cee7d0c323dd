"""What a soak's samples come to: the table, and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

from loadtests.growth import Sample
from loadtests.ledger import End
from loadtests.soak import Soak, _judge, _write


def samples(*, mb_each: float = 0.0) -> list[Sample]:
    return [
        Sample(
            at_s=float(number),
            rss_mb=800.0 + mb_each * number,
            n_fds=40,
            n_threads=30,
            n_waiting=0.0,
            n_compiled=0.0,
            traced_s=0.0,
            n_cycles=0,
            n_answers=number,
        )
        for number in range(100)
    ]


def soak(tmp_path: Path) -> Soak:
    return Soak("http://127.0.0.1:1", tmp_path, ("digits",))


def test_a_quiet_run_has_no_faults_and_is_written_down(tmp_path: Path) -> None:
    table, faults = _judge(soak(tmp_path), samples())
    assert faults == []
    assert table.row_count == 8
    _write(tmp_path / "report.json", samples(), faults)
    written = json.loads((tmp_path / "report.json").read_text())
    assert len(written["samples"]) == 100
    assert written["samples"][3]["rss_mb"] == 800.0


def test_growth_a_fault_of_the_load_and_an_unexplained_request_are_each_told(tmp_path: Path) -> None:
    run = soak(tmp_path)
    run.faults.append("digits: wrong answer")
    run.ledger.sent()
    run.ledger.ended(End.UNEXPLAINED, "request-1: 418")
    run.ledger.sent()
    _, faults = _judge(run, samples(mb_each=1.0))
    assert len(faults) == 4
    assert faults[0] == "digits: wrong answer"
    assert "resident memory" in faults[1]
    assert "+1 requests have no end" in faults[2]
    assert "request-1: 418" in faults[3]
