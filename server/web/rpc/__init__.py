"""gRPC: the services, which know bytes and errors alone, and the server that carries them."""

from __future__ import annotations

__all__: list[str] = []
