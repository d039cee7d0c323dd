"""A second opinion on the driver: wrk, a load generator in C, sending the same requests in turn.

It checks no answer but its status, and it can't be told to stop on one, so it only confirms throughput. Used where
it is installed (Debian: wrk), never needed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from loadtests.workload import Workload

__all__ = ["available", "requests_per_s", "script"]

_RATE = re.compile(r"Requests/sec:\s*([\d.]+)")
_BAD = re.compile(r"Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)")


def available() -> bool:
    """Return whether wrk is installed."""
    return shutil.which("wrk") is not None


def script(workload: Workload) -> str:
    """Return a wrk script that sends the workload's requests in turn."""
    bodies = ",\n".join(_quoted(body.decode()) for body in workload.bodies)
    return f"""local bodies = {{
{bodies}
}}
local requests, turn = {{}}, 0
init = function(arguments)
  local headers = {{["Content-Type"] = "application/json"}}
  for i, body in ipairs(bodies) do
    requests[i] = wrk.format("POST", "{workload.path}", headers, body)
  end
end
request = function()
  turn = turn % #requests + 1
  return requests[turn]
end
"""


def requests_per_s(url: str, workload: Workload, *, callers: int, duration_s: int = 2) -> float:
    """Return what wrk measures with one thread. Errors: RuntimeError if wrk fails or any answer was an error."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "requests.lua")
        path.write_text(script(workload))
        result = subprocess.run(
            ["wrk", "-t1", f"-c{callers}", f"-d{duration_s}s", "-s", str(path), url],
            capture_output=True,
            text=True,
            check=False,
        )
    rate, bad = _RATE.search(result.stdout), _BAD.search(result.stdout)
    if result.returncode or rate is None or bad:
        raise RuntimeError(f"wrk against {url}: {result.stdout[-500:]} {result.stderr[-500:]}")
    return float(rate[1])


def _quoted(text: str) -> str:
    # Long brackets need no escapes; the level is one that JSON can't contain at its end.
    return f"[==[{text}]==]"
