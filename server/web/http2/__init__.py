"""HTTP/2 as a server of gRPC needs it: frames, header blocks, streams, flow control. It knows nothing of gRPC."""

from __future__ import annotations

__all__: list[str] = []
