"""A port for a program that can't be told to take any that is free."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

__all__ = ["free_port"]

#: Below are those of well-known services, and our own usual ones.
_FIRST = 10_000
_GIVEN_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Not by the seed that a test sets: two processes would look at the same ports.
_RANDOM = random.SystemRandom()


def free_port() -> int:
    """Return a port of this machine's loopback that nobody listens on, of those that the kernel gives to nobody.

    Of the others, whoever asks for any may get it before it is listened on, and so may a connection to elsewhere.
    """
    end = int(_GIVEN_OUT.read_text().split()[0]) if _GIVEN_OUT.exists() else 32_768
    while True:
        port = _RANDOM.randrange(_FIRST, end)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
