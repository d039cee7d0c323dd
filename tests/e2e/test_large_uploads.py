"""A large upload passes through the server without staying in its memory."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from server_process import ServerProcess

_MIB = 2**20
_ARCHIVE_BYTES = 500 * _MIB
_EXTRA_BYTES = 64 * _MIB
_CHUNK = os.urandom(_MIB)
_BOUNDARY = b"a-boundary-that-no-chunk-has"


def archive() -> Iterator[bytes]:
    """As many bytes as a large model has; a builder finds out that they are none."""
    yield from itertools.repeat(_CHUNK, _ARCHIVE_BYTES // _MIB)


def form() -> Iterator[bytes]:
    yield b"--" + _BOUNDARY + b'\r\nContent-Disposition: form-data; name="archive"; filename="m.zip"\r\n\r\n'
    yield from archive()
    yield b"\r\n--" + _BOUNDARY + b"--\r\n"


class Memory:
    """The most that a process has been resident with since this was made, above what it was then."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        self._before = self._bytes("VmRSS")

    def _bytes(self, field: str) -> int:
        found = re.search(rf"{field}:\s+(\d+) kB", self._status.read_text())
        assert found is not None
        return int(found[1]) * 1024

    @property
    def extra_bytes(self) -> int:
        return self._bytes("VmHWM") - self._before


@pytest.mark.long
@pytest.mark.parametrize("way", ["form", "pieces"])
def test_an_archive_of_500_mb_takes_no_memory(server: ServerProcess, way: str) -> None:
    with httpx.Client(base_url=server.url, timeout=300) as client:
        memory = Memory(server.process.pid)
        if way == "form":
            kind = "multipart/form-data; boundary=" + _BOUNDARY.decode()
            answer = client.put("/v1/models/large", content=form(), headers={"content-type": kind})
        else:
            begun = client.post("/v1/uploads", headers={"upload-length": str(_ARCHIVE_BYTES)})
            piece = {"content-type": "application/offset+octet-stream", "upload-offset": "0"}
            assert client.patch(begun.headers["location"], content=archive(), headers=piece).status_code == 204
            answer = client.put("/v1/models/large", json={"upload": begun.headers["location"]})
        extra_bytes = memory.extra_bytes
        print(f"{way}: {extra_bytes / _MIB:.1f} MiB more at the most")
        assert answer.status_code == 202, answer.text
        assert extra_bytes <= _EXTRA_BYTES, f"{extra_bytes / _MIB:.1f} MiB more at the most"
        client.delete("/v1/models/large")
