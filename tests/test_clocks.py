"""A clock that is set back or forward changes nothing: deadlines, waits and costs go by the monotonic one.

What asks the wall clock is listed here with what it does with it; everything else that serves may not.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: By file: why a jump does no harm there.
MAY_ASK: dict[str, str] = {
    "server/batch_log.py": "says when a batch ran, to people",
    "server/build/compile.py": "says when an artifact was built, to people",
    "server/logs.py": "says when something was logged, to people",
    "server/processes.py": "says when processes were started, to people",
    "server/rights/audit.py": "says when who did what, to people",
    "server/rights/expiry.py": "says when tokens end, to people",
    "server/shared_store/documents.py": "says when a version was registered or activated, to people",
    "server/statistics.py": "says when a model was last asked, to people",
    "server/store/recovery.py": "says when a version without a record was last written, to people",
    "server/store/store.py": "says when a version was registered, to people",
    "server/web/auth.py": "tokens end by the calendar; set forward, it refuses them too early, set back, too late",
    "server/web/partial_uploads.py": "says which uploads were left alone for a day, by when their files were written",
    "server/web/tracing.py": "traces of several machines are put together by it",
}

_ASKS = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today")}
_ASKS |= {("datetime", "fromtimestamp"), ("date", "today")}


def asks(path: Path) -> list[int]:
    """Return the lines that name the wall clock."""
    lines = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if (owner, node.attr) in _ASKS:
                lines.append(node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            lines += [node.lineno for name in node.names if name.name in {"time", "time_ns"}]
    return lines


def test_nothing_that_serves_goes_by_a_clock_that_can_be_set() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): lines for path in (ROOT / "server").rglob("*.py") if (lines := asks(path))
    }
    assert set(found) == set(MAY_ASK), found


def test_the_wall_clock_is_seen_however_it_is_named(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("import time, datetime\nfrom time import time\ntime.time()\ndatetime.datetime.now()\n")
    assert asks(file) == [2, 3, 4]
    file.write_text("import time\ntime.monotonic()\ntime.perf_counter()\n")
    assert asks(file) == []
