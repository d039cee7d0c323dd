"""Write the model for one example; serve it by the batch: the client's side::

    import rowwise

    with rowwise.Client("http://127.0.0.1:8000") as client:
        client.register("double", lambda x: 2 * x, inputs={"x": {"dtype": "float32", "shape": []}})
        client.predict("double", x=21.0)

Importing this package costs next to nothing: its names are loaded when they are first used, and TensorFlow
only when a function has to be traced. A process that only predicts never loads it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rowwise.async_client import AsyncClient
    from rowwise.client import Client
    from rowwise.declaration import example_model
    from rowwise.errors import (
        BadAnswer,
        BuildFailed,
        CannotLoad,
        CannotTrace,
        Conflict,
        ConnectionFailed,
        DeadlineExceeded,
        InvalidRequest,
        NotConnected,
        NotFound,
        Overloaded,
        RowwiseClientError,
        ServerFailed,
        ServerRefused,
        Superseded,
        TimedOut,
        TooLarge,
        Unauthorized,
        Unsupported,
        WrongInputs,
    )
    from rowwise.version_status import VersionStatus

__all__ = [
    "AsyncClient",
    "BadAnswer",
    "BuildFailed",
    "CannotLoad",
    "CannotTrace",
    "Client",
    "Conflict",
    "ConnectionFailed",
    "DeadlineExceeded",
    "InvalidRequest",
    "NotConnected",
    "NotFound",
    "Overloaded",
    "RowwiseClientError",
    "ServerFailed",
    "ServerRefused",
    "Superseded",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "Unsupported",
    "VersionStatus",
    "WrongInputs",
    "__version__",
    "example_model",
]

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "rowwise.async_client",
    "Client": "rowwise.client",
    "VersionStatus": "rowwise.version_status",
    "example_model": "rowwise.declaration",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rowwise' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "rowwise.errors")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
