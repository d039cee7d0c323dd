"""The service: batching core, engine, builder, store, protocols and web, wired together by ``server.app``."""

__all__: list[str] = []
