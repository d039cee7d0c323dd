"""The root of every error that the server raises on purpose.

::

    RowwiseError
    ├── server.batching.errors   queue full, deadline passed, cancelled, draining
    ├── server.build.errors      specification refused, builder failed
    ├── server.engine.errors     artifact refused, execution failed
    ├── server.link.errors       the engine process is gone
    ├── server.protocol.errors   bytes that are not a request
    └── server.store.errors      unknown model or version, store damaged

The core knows no HTTP: ``server.web.status`` maps each class to a status code for every protocol, and a test
requires every class to be there.
"""

__all__ = ["RowwiseError"]


class RowwiseError(Exception):
    """An expected failure. ``str(error)`` is a sentence for the caller: where, expected, got, what to do."""
