"""A server with a scripted model and few file descriptors, as a process; says its port, then how busy it is."""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path

from server.descriptors import connections_allowed
from server.http_server import new_event_loop
from tests.web.sockets import running


async def main(limit: int, *, bounded: bool) -> None:
    most = connections_allowed(limit) if bounded else 10**6
    async with running(Path(tempfile.mkdtemp()), max_connections=most) as one:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        print(one.port, flush=True)
        while not one.server.should_exit:
            before_s, began_s = time.process_time(), time.monotonic()
            await asyncio.sleep(0.2)
            print((time.process_time() - before_s) / (time.monotonic() - began_s), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main(int(sys.argv[1]), bounded=sys.argv[2] == "bounded"))
