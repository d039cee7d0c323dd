"""Heads of requests that were seen before, byte for byte: what they mean needs no second parsing.

A client that asks the same thing again sends the same request line and the same headers, up to the length of the body.
What a head means depends on its bytes alone, so the second one that is equal to the first means what the first did.
Only heads of predictions that carry nothing of their own (no id, no trace) are remembered.
"""

from __future__ import annotations

from server.protocol import BodyFormat
from server.rights import Rate
from server.web.hot_request import HotRequest
from server.web.paths import VerbPath

__all__ = ["END_OF_HEAD", "KnownHead", "KnownHeads"]

END_OF_HEAD = b"\r\n\r\n"
#: Longer ones are seldom, and strangers can make them up.
_MAX_HEAD_BYTES = 1_024
#: Past it, all are forgotten: about 4 MiB.
_MAX_HEADS = 4_096


class KnownHead:
    """A prediction's head: what is asked and in what time, how the body is read, and how many bytes of it follow.

    ``keep_alive``: its answer is not the connection's last. Whoever sends it may, as its token is part of it;
    ``rate`` is what its rows are charged to.
    """

    __slots__ = ("keep_alive", "n_body", "path", "rate", "timeout_s", "wire")

    def __init__(
        self,
        path: VerbPath,
        wire: BodyFormat,
        timeout_s: float | None,
        n_body: int,
        rate: Rate | None,
        *,
        keep_alive: bool,
    ) -> None:
        self.path = path
        self.wire = wire
        self.timeout_s = timeout_s
        self.n_body = n_body
        self.rate = rate
        self.keep_alive = keep_alive


class KnownHeads:
    """The heads by their bytes, the empty line included. ``find`` returns None for one that is not known."""

    def __init__(self) -> None:
        self._heads: dict[bytes, KnownHead] = {}
        self.find = self._heads.get

    def remember(self, data: bytes, hot: HotRequest) -> None:
        """Remember the head of a request that carries nothing of its own, if it can be told from its body.

        ``data``: what came at one time, between two requests: all of the head, and of the body what was received so
        far. Anything else in it, and where the head ends is not known.
        """
        end = data.find(END_OF_HEAD) + len(END_OF_HEAD)
        if not len(END_OF_HEAD) <= end <= _MAX_HEAD_BYTES or len(data) - end != hot.n_received:
            return
        if len(self._heads) >= _MAX_HEADS:
            self._heads.clear()
        self._heads[data[:end]] = KnownHead(
            hot.path, hot.wire, hot.timeout_s, hot.n_body, hot.rate, keep_alive=hot.keep_alive
        )

    def forget(self) -> None:
        """Forget all: what they mean has changed."""
        self._heads.clear()
