"""The client of a Rowwise server, for an event loop."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from rowwise._async_http import AsyncConnection
from rowwise._calls import Calls
from rowwise._http import Target, model_path
from rowwise._pointing import Pointing
from rowwise._predictions import Prediction
from rowwise._registering import OnStage, Registering
from rowwise._retries import Retries
from rowwise.version_status import VersionStatus

__all__ = ["AsyncClient"]


class AsyncClient:
    """What ``Client`` is, with methods to await: the same names, arguments, results and errors::

        async with AsyncClient("http://127.0.0.1:8000") as client:
            results = await asyncio.gather(*(client.predict("digits", x=each) for each in pixels))

    It belongs to the event loop in which it is first used. Tracing and packing of a registration run on a thread.
    A call that is cancelled closes its connection, so that the server drops what it has not begun.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        register_timeout_s: float | None = None,
        retries: int = 3,
        connections: int = 100,
        binary: bool = True,
        progress: bool | None = False,
        ca: str | os.PathLike[str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        target = Target(url, token=token, connections=connections, ca=ca)
        self._connection = AsyncConnection(target, transport=transport)
        self._calls = Calls(timeout_s=timeout_s, retries=Retries(retries), binary=binary)
        self._registering = Registering(self._calls, timeout_s=register_timeout_s, progress=progress)
        self._pointing = Pointing(self._calls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. A closed client can't be used again."""
        await self._connection.aclose()

    async def register(
        self,
        name: str,
        target: Any = None,
        *,
        source: str | Path | None = None,
        weights: Mapping[str, Any] | Path | None = None,
        function: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        on_stage: OnStage | None = None,
        **spec: Any,
    ) -> VersionStatus:
        """As ``Client.register``. ``on_stage`` is called from threads, too."""
        return await self._connection.run(
            self._registering.register(
                name,
                target,
                source=source,
                weights=weights,
                function=function,
                inputs=inputs,
                spec=spec,
                on_stage=on_stage,
            )
        )

    async def register_import(
        self, name: str, import_path: str, *, on_stage: OnStage | None = None, **spec: Any
    ) -> VersionStatus:
        """As ``Client.register_import``."""
        return await self._connection.run(
            self._registering.register_import(name, import_path, spec=spec, on_stage=on_stage)
        )

    async def predict(self, name: str, /, **inputs: Any) -> Prediction:
        """As ``Client.predict``."""
        return (await self._connection.run(self._calls.predict(name, [inputs], version=None)))[0]

    async def predict_many(
        self, name: str, examples: Iterable[Any], *, version: int | None = None, n_per_request: int = 256
    ) -> list[Prediction]:
        """As ``Client.predict_many``."""
        return await self._connection.run(
            self._calls.predict_many(name, examples, version=version, n_per_request=n_per_request)
        )

    async def gradient(self, name: str, example: Any, **options: Any) -> Prediction:
        """As ``Client.gradient``."""
        return (await self.derivative_many("gradient", name, [example], **options))[0]

    async def jacobian(self, name: str, example: Any, **options: Any) -> Prediction:
        """As ``Client.jacobian``."""
        return (await self.derivative_many("jacobian", name, [example], **options))[0]

    async def hessian(self, name: str, example: Any, **options: Any) -> Prediction:
        """As ``Client.hessian``."""
        return (await self.derivative_many("hessian", name, [example], **options))[0]

    async def derivative_many(
        self,
        kind: str,
        name: str,
        examples: Iterable[Any],
        *,
        output: str | None = None,
        wrt: str | Sequence[str] | None = None,
        version: int | None = None,
        n_per_request: int = 256,
    ) -> list[Prediction]:
        """As ``Client.derivative_many``."""
        return await self._connection.run(
            self._calls.derivative_many(
                kind, name, examples, output=output, wrt=wrt, version=version, n_per_request=n_per_request
            )
        )

    async def models(self) -> list[VersionStatus]:
        """As ``Client.models``."""
        return await self._connection.run(self._calls.models())

    async def certificate(self, name: str, version: int | None = None) -> dict[str, Any]:
        """As ``Client.certificate``."""
        return await self._connection.run(self._calls.document(name, version, "/certificate"))

    async def metadata(self, name: str, version: int | None = None) -> dict[str, Any]:
        """As ``Client.metadata``."""
        return await self._connection.run(self._calls.metadata(name, version))

    async def costs(self, name: str, version: int | None = None) -> dict[str, Any]:
        """As ``Client.costs``."""
        return await self._connection.run(self._calls.document(name, version, "/costs"))

    async def activate(self, name: str, version: int) -> None:
        """As ``Client.activate``."""
        await self._connection.run(self._pointing.activate(name, version))

    async def rollback(self, name: str) -> VersionStatus:
        """As ``Client.rollback``."""
        return await self._connection.run(self._pointing.rollback(name))

    async def unload(self, name: str) -> None:
        """As ``Client.unload``."""
        await self._connection.run(self._pointing.unload(name))

    async def labels(self, name: str) -> dict[str, int]:
        """As ``Client.labels``."""
        return await self._connection.run(self._pointing.labels(name))

    async def set_label(self, name: str, label: str, version: int) -> VersionStatus:
        """As ``Client.set_label``."""
        return await self._connection.run(self._pointing.set_label(name, label, version))

    async def remove_label(self, name: str, label: str) -> None:
        """As ``Client.remove_label``."""
        await self._connection.run(self._pointing.remove_label(name, label))

    async def history(self, name: str) -> list[dict[str, Any]]:
        """As ``Client.history``."""
        return await self._connection.run(self._pointing.history(name))

    async def set_shadow(self, name: str, version: int, share: float) -> dict[str, Any]:
        """As ``Client.set_shadow``."""
        path = model_path(name, version, ":shadow")
        report: dict[str, Any] = await self._connection.run(self._calls.tell("POST", path, {"share": share}))
        return report

    async def shadow(self, name: str, version: int) -> dict[str, Any]:
        """As ``Client.shadow``."""
        report: dict[str, Any] = await self._connection.run(self._calls.ask(model_path(name, version, "/shadow")))
        return report

    async def delete(self, name: str, version: int | None = None) -> None:
        """As ``Client.delete``."""
        await self._connection.run(self._calls.delete(name, version))

    async def ready(self) -> bool:
        """As ``Client.ready``."""
        return await self._connection.run(self._calls.ready())
