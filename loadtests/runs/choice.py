"""Which engine drives a load, and why: locust where it can keep up, the fast driver where not."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Literal

from loadtests.runs.load import Load

__all__ = ["BUSY", "LOCUST_REQUESTS_PER_S", "Choice", "Engine", "choose", "locust_is_installed", "refusal_of_locust"]

Engine = Literal["driver", "locust"]

#: A generator that was at work for this share of a core may itself have been the limit.
BUSY = 0.9
#: What one locust process is trusted with, requests a second: a fifth of what fills a core with it. Measured against a
#: server that answers at once, on a busy AMD EPYC: 2,200 to 2,500, where the driver does 15,000 to 18,000.
LOCUST_REQUESTS_PER_S = 500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Who drives, and a sentence that says why."""

    engine: Engine
    reason: str


def locust_is_installed() -> bool:
    """Return whether locust can be imported; it is an extra."""
    return importlib.util.find_spec("locust") is not None


def refusal_of_locust(load: Load, *, scheme: str, is_installed: bool) -> str | None:
    """Return why locust can't drive a load at all; None: it can."""
    if load.is_open:
        return "locust's users wait for their answers, which makes an open loop a closed one"
    if scheme != "http":
        return "locust's quick client checks no certificates"
    if not is_installed:
        return "locust is not installed (pip install 'rowwise[loadtest]')"
    return None


def choose(
    asked: Literal["auto", "driver", "locust"], load: Load, *, scheme: str, is_installed: bool, probed_per_s: float
) -> Choice:
    """Return who drives. ``probed_per_s`` is what the fast driver got out of the server in a moment of this load.

    ``asked`` locust for a load that it can't drive is for the caller to refuse: see ``refusal_of_locust``.
    """
    if asked != "auto":
        return Choice(engine=asked, reason=f"asked for by --engine {asked}")
    refusal = refusal_of_locust(load, scheme=scheme, is_installed=is_installed)
    if refusal is not None:
        return Choice(engine="driver", reason=refusal)
    if probed_per_s > LOCUST_REQUESTS_PER_S:
        return Choice(
            engine="driver",
            reason=f"a probe got {probed_per_s:,.0f} requests/s, and locust is trusted with "
            f"{LOCUST_REQUESTS_PER_S:.0f}: above that it may itself be the limit",
        )
    return Choice(
        engine="locust",
        reason=f"a probe got {probed_per_s:,.0f} requests/s, which locust keeps up with "
        f"(it is trusted with {LOCUST_REQUESTS_PER_S:.0f})",
    )
