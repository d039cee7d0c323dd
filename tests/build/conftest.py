"""Both kinds of archive, both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from tests.build.doubles.archives import Pack, pack_tar, pack_zip


@pytest.fixture(params=[pack_tar, pack_zip], ids=["tar.gz", "zip"])
def pack(request: pytest.FixtureRequest) -> Pack:
    packer: Pack = request.param
    return packer


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a coroutine on each of the loops that the server may have."""

    def runner(coroutine: Coroutine[Any, Any, None]) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as loop:
            loop.run(asyncio.wait_for(coroutine, 300))

    return runner
