"""Which versions run as shadows: beginning, changing and ending it, as the management API asks for."""

from __future__ import annotations

import asyncio
from typing import Any

from server.hosting import Host, Hosted
from server.shadow import Shadow
from server.signature import ModelSignature
from server.store import Conflict, ModelStore
from server.switching import Switching

__all__ = ["Shadows"]


class Shadows:
    """The shadow of each model that has one. All of it runs on the event loop, changes under the model's lock."""

    def __init__(self, *, store: ModelStore, host: Host, switching: Switching) -> None:
        self._store = store
        self._host = host
        self._switching = switching
        self._hosted: dict[str, tuple[Shadow, Hosted]] = {}
        switching.before, switching.after = self.before_switch, self.after_switch

    def report(self, name: str, version: int) -> dict[str, Any] | None:
        """Return what is known of a version that is a shadow; None if it is none."""
        found = self._hosted.get(name)
        return None if found is None or found[0].version != version else found[0].to_json()

    async def set_share(self, name: str, version: int, share: float) -> dict[str, Any]:
        """Let a built version run on a share of the live batches, from 0, which ends it, to 1; return its report.

        Errors: ModelNotFound; VersionNotFound; Conflict with the reason; ArtifactRefused or LoadFailed.
        """
        self._store.record(name, version)
        async with self._switching.change(name):
            known = self._hosted.get(name)
            if known is not None and known[0].version == version:
                known[0].share = share
                if not share:
                    await self.stop(name)
                return known[0].to_json()
            if not share:
                raise Conflict(f"version {version} of model {name!r} is no shadow")
            if known is not None:
                raise Conflict(
                    f"version {known[0].version} is the shadow of model {name!r}: stop it first, with a share of 0"
                )
            return await self._start(name, version, share)

    async def _start(self, name: str, version: int, share: float) -> dict[str, Any]:
        serving = self._switching.serving(name)
        if serving is None:
            raise Conflict(f"no version of model {name!r} serves: there is nothing that version {version} could shadow")
        if serving.model.version == version:
            raise Conflict(f"version {version} of model {name!r} serves: it can't be its own shadow")
        if self._switching.answering(name, version) is not None:
            raise Conflict(f"version {version} of model {name!r} answers by a label: it can't be a shadow")
        candidate = await self._switching.load(name, version)
        difference = _difference(serving, candidate)
        if difference:
            await self._host.unload(candidate)
            raise Conflict(
                f"version {version} of model {name!r} can't shadow version {serving.model.version}: {difference}"
            )
        shadow = self._host.shadow(candidate, share)
        self._hosted[name] = shadow, candidate
        return shadow.to_json()

    async def before_switch(self, name: str, version: int) -> None:
        """End the shadow of a version that is to serve: it is loaded anew. Called under the model's lock."""
        await self.stop(name, version)

    async def after_switch(self, name: str, _version: int) -> None:
        """End the model's shadow if it can't shadow what serves now. Called under the model's lock."""
        known, serving = self._hosted.get(name), self._switching.serving(name)
        if known is not None and (serving is None or _difference(serving, known[1])):
            await self.stop(name)

    async def stop(self, name: str, version: int | None = None) -> None:
        """End the model's shadow, if it has one (and if it is ``version``). Called under the model's lock."""
        known = self._hosted.get(name)
        if known is None or version not in (None, known[0].version):
            return
        del self._hosted[name]
        shadow, candidate = known
        stopped = asyncio.get_running_loop().create_future()
        self._host.shadows.stop(shadow, lambda: stopped.set_result(None))
        await stopped
        await self._host.unload(candidate)


def _difference(serving: Hosted, candidate: Hosted) -> str:
    """Say how the signatures differ; empty if they are equal."""
    live, other = (hosted.loaded[0].manifest for hosted in (serving, candidate))
    if live.entries.keys() != other.entries.keys():
        return f"it has {sorted(other.entries)}, not {sorted(live.entries)}"
    for entry in live.entries:
        one, two = live.signature_of(entry), other.signature_of(entry)
        if one != two:
            return f"the signatures of {entry!r} differ: {_shown(two)}, not {_shown(one)}"
    return ""


def _shown(signature: ModelSignature) -> str:
    def listed(tensors: Any) -> str:
        return ", ".join(f"{tensor.name} {tensor.dtype}{list(tensor.shape)}" for tensor in tensors)

    lengths = "".join(f", lengths of {axis.name} {list(axis.buckets)}" for axis in signature.axes)
    return f"({listed(signature.inputs)}) -> ({listed(signature.outputs)}){lengths}"
