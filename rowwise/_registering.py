"""Registering as steps: trace and pack, upload, and wait until the server has built, checked and warmed it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from rowwise._calls import JSON, Calls
from rowwise._http import answer_json, model_path
from rowwise._pieces import PIECES_ABOVE_BYTES, forget_upload, upload_in_pieces
from rowwise._registration import Submission, UploadReader, prepare, repr_digest, spec_as_json
from rowwise._source import source_parts
from rowwise._steps import Send, Steps, Work
from rowwise._watch import wait_until_available
from rowwise.errors import BadAnswer, RowwiseClientError, WrongInputs
from rowwise.progress import RegistrationView, view_for
from rowwise.targets import resolve
from rowwise.values import encode_json
from rowwise.version_status import Stage, VersionStatus

__all__ = ["OnStage", "Registering"]

#: Seconds in which an upload must move, and that the server may take to record one that it has received.
_UPLOAD_TIMEOUT_S = 120.0

OnStage = Callable[[Stage], None]


class Registering:
    """Registers models through a client's calls. ``timeout_s`` bounds the wait for the server; ``progress``: a bar."""

    def __init__(self, calls: Calls, *, timeout_s: float | None, progress: bool | None) -> None:
        self._calls = calls
        self._timeout_s = timeout_s
        self._progress = progress

    def register(
        self,
        name: str,
        target: Any,
        *,
        source: str | Path | None,
        weights: Mapping[str, Any] | Path | None,
        function: str | None,
        inputs: Mapping[str, Any] | None,
        spec: Mapping[str, Any],
        on_stage: OnStage | None,
    ) -> Steps[VersionStatus]:
        """Register what is here: a target that is traced here, or source text that the server traces."""
        if (target is None) == (source is None):
            raise WrongInputs("register: expected a target or a source, one of them")
        if source is not None:
            form = source_parts(source, weights=weights, function=function, inputs=inputs, spec=spec)
            return (yield from self._upload(name, form, spec=spec, on_stage=on_stage))
        if weights is not None or function is not None:
            raise WrongInputs("register: 'weights' and 'function' go with 'source'; a target has its own")
        return (yield from self._register_target(name, target, inputs=inputs, spec=spec, on_stage=on_stage))

    def _register_target(
        self,
        name: str,
        target: Any,
        *,
        inputs: Mapping[str, Any] | None,
        spec: Mapping[str, Any],
        on_stage: OnStage | None,
    ) -> Steps[VersionStatus]:
        with (
            view_for(name, progress=self._progress, on_stage=on_stage) as view,
            tempfile.TemporaryDirectory(prefix="rowwise-") as scratch,
        ):
            found = yield Work(partial(resolve, target))
            submission = yield Work(partial(prepare, found, inputs=inputs, spec=spec, scratch=Path(scratch), view=view))
            digest = yield Work(partial(repr_digest, submission.archive))
            if submission.archive.stat().st_size > PIECES_ABOVE_BYTES:
                taken = yield from self._put_pieces(name, submission, digest, view)
            else:
                taken = yield from self._put_at_once(name, submission, digest, view)
            return (yield from self._wait(name, taken, view, activates=submission.spec.get("activate") is not False))

    def _put_at_once(self, name: str, submission: Submission, digest: str, view: RegistrationView) -> Steps[Any]:
        with submission.archive.open("rb") as file:
            upload = UploadReader(file, view.show)
            # The specification goes first, so that a wrong one is refused before the archive is read.
            parts = [
                ("spec", (None, encode_json(submission.spec), "application/json")),
                ("archive", (submission.archive.name, upload, "application/octet-stream", {"Repr-Digest": digest})),
            ]
            return (yield from self._put(name, files=parts))

    def _put_pieces(self, name: str, submission: Submission, digest: str, view: RegistrationView) -> Steps[Any]:
        upload = yield from upload_in_pieces(
            self._calls, submission.archive, model=name, spec=submission.spec, digest=digest, view=view
        )
        try:
            content = encode_json({"upload": upload, "spec": submission.spec})
            return (yield from self._put(name, content=content))
        except RowwiseClientError:
            yield from forget_upload(self._calls, upload)
            raise

    def _upload(
        self, name: str, parts: Any, *, spec: Mapping[str, Any], on_stage: OnStage | None
    ) -> Steps[VersionStatus]:
        with view_for(name, progress=self._progress, on_stage=on_stage) as view:
            taken = yield from self._put(name, files=parts)
            return (yield from self._wait(name, taken, view, activates=spec.get("activate") is not False))

    def _put(self, name: str, *, files: Any = None, content: bytes | None = None) -> Steps[Any]:
        request = Send(
            method="PUT",
            path=model_path(name),
            files=files,
            content=content,
            # So that an upload whose answer was lost is sent again, and makes one version.
            headers={"Idempotency-Key": str(uuid4()), **({} if content is None else JSON)},
            timeout_s=_UPLOAD_TIMEOUT_S,
            is_long=True,
            repeats=True,
        )
        return answer_json(request, (yield from self._calls.send(request)))

    def register_import(
        self, name: str, import_path: str, *, spec: Mapping[str, Any], on_stage: OnStage | None
    ) -> Steps[VersionStatus]:
        """Register what the server imports."""
        with view_for(name, progress=self._progress, on_stage=on_stage) as view:
            taken = yield from self._calls.tell(
                "PUT", model_path(name), {"import_path": import_path, **spec_as_json(spec)}
            )
            return (yield from self._wait(name, taken, view, activates=spec.get("activate") is not False))

    def _wait(self, name: str, taken: Any, view: RegistrationView, *, activates: bool) -> Steps[VersionStatus]:
        status_url = taken.get("status_url") if isinstance(taken, dict) else None
        if not isinstance(status_url, str):
            raise BadAnswer(f"the server took the registration but named no status_url: {str(taken)[:200]}")
        # Only its path and query: the token must not follow a host that an answer names, and behind a proxy
        # the server may know itself by another one.
        url = urlsplit(status_url)
        path = url.path + (f"?{url.query}" if url.query else "")

        def fetch() -> Steps[VersionStatus]:
            request = Send(method="GET", path=path, timeout_s=self._calls.timeout_s)
            return VersionStatus.from_json(answer_json(request, (yield request)))

        status = yield from wait_until_available(
            fetch, view=view, clock=time.monotonic, timeout_s=self._timeout_s, activates=activates
        )
        self._calls.forget(name)
        return status
