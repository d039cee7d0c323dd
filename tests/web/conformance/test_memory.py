"""What a request took is free when it is answered: tensors that are held in cycles wait for the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.web.conformance.asking import Asked, Protocol
from tests.web.conformance.models import Echo
from tests.web.conformance.protocols import PROTOCOLS
from tests.web.conformance.serving import Server

_LARGE_BYTES = 100_000


@pytest.fixture
def uncollected() -> Iterator[list[Any]]:
    """The objects that only the garbage collector can free, once it was asked to look."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def large(value: object) -> bool:
    return isinstance(value, bytes | bytearray | memoryview | np.ndarray) and memoryview(value).nbytes > _LARGE_BYTES


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_tensors_of_a_request_that_was_answered_waited_for_the_garbage_collector(
    server: Server, protocol: Protocol, uncollected: list[Any]
) -> None:
    # Of few digits, and so many that its text is decoded in a thread.
    array = np.zeros((1, 200_000), np.float32)
    model = server.serve(Echo("float32", array.shape[1:], name="wide"))
    asked = Asked("wide", {"x": ("float32", array)}, model.signature.outputs)
    for in_pieces in (False, True) if protocol.is_http else (False,):
        protocol.ask(server, replace(asked, in_pieces=in_pieces))
    model.rows.clear()
    gc.collect()
    holders = [type(each).__name__ for each in uncollected if any(map(large, gc.get_referents(each)))]
    # The client's own lists of numbers are none of the server's.
    assert [name for name in holders if name not in {"list", "cell", "dict"}] == []
