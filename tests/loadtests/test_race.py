"""Our place in the race with other servers: who takes part, and what several runs come to."""

from __future__ import annotations

from pathlib import Path

from loadtests.race import contestants, summarize


def test_we_take_part_in_each_protocol_with_a_store_for_each_model(tmp_path: Path) -> None:
    ours = contestants(tmp_path)
    assert {entry["proto"] for entry in ours.values()} == {"v1", "v2", "v2bin"}
    for entry in ours.values():
        filled = [part.format(port=8123, model="lstm", root="/race") for part in entry["cmd"]]
        assert "m=loadtests.race_models.lstm:predict" in filled
        assert str(tmp_path / "lstm") in filled


def row(rps: float, *, peer: str = "rowwise", callers: int = 8, errors: int = 0) -> dict[str, object]:
    return {
        "model": "lstm",
        "peer": peer,
        "conc": callers,
        "rps": rps,
        "p50_ms": 1.0,
        "p99_ms": 2.0,
        "cpu_us": 30.0,
        "errors": errors,
    }


def test_medians_count_and_errors_are_summed_and_failures_stay() -> None:
    failure = {"model": "lstm", "peer": "other", "failed": "not ready"}
    found = summarize([[row(100.0), failure], [row(300.0, errors=2)], [row(120.0), row(50.0, callers=32)]])
    assert [(entry.get("callers"), entry.get("rps"), entry.get("errors")) for entry in found] == [
        (8, 120.0, 2),
        (32, 50.0, 0),
        (None, None, None),
    ]
    assert found[-1]["failed"] == "not ready"
