"""The client of a Rowwise server."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx

from rowwise._derivatives import derivative_signature, query
from rowwise._http import Connection, model_path
from rowwise._metadata import RemoteSignature
from rowwise._pointing import Pointing
from rowwise._predictions import Prediction, decode_predictions, encode_instances
from rowwise._registration import UploadReader, prepare, spec_as_json
from rowwise._source import source_parts
from rowwise._watch import wait_until_available
from rowwise.errors import BadAnswer, InvalidRequest, NotFound, Overloaded, WrongInputs
from rowwise.progress import RegistrationView, view_for
from rowwise.targets import resolve
from rowwise.values import encode_json
from rowwise.version_status import VersionStatus

__all__ = ["Client"]

_Entry = TypeVar("_Entry")

#: How long what is known of a model's inputs and outputs is trusted, seconds. A version that differs in more
#: than dtypes is noticed at once, by its answers.
_SIGNATURE_LIFE_S = 60.0
#: Seconds that the server may take to record an upload that it has received.
_UPLOAD_TIMEOUT_S = 120.0
_JSON = {"Content-Type": "application/json"}


class Client(Pointing):
    """Registers and calls the models of the server at ``url``.

        with Client("http://127.0.0.1:8000") as client:
            client.register("digits", predict, inputs={"x": tf.TensorSpec([64])})
            client.predict("digits", x=pixels)

    ``timeout_s`` bounds the wait for each answer, and the server drops a prediction that it can't give within
    it. ``register_timeout_s`` bounds a whole registration (None: as long as the server's own limit lets it
    build). ``progress``: True or False shows or hides the bar of a registration; None shows it on a terminal.
    ``ca``: a file of certificates in PEM that an https server's is checked with; None: those of this machine.
    One client may be shared by threads.
    Errors: every method raises subclasses of RowwiseClientError.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        register_timeout_s: float | None = None,
        progress: bool | None = None,
        ca: str | os.PathLike[str] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._connection = Connection(url, token=token, timeout_s=timeout_s, ca=ca, transport=transport)
        self._predict_headers = {**_JSON, "X-Request-Timeout-Ms": str(max(1, round(timeout_s * 1000)))}
        self._register_timeout_s = register_timeout_s
        self._progress = progress
        #: What each (model, version) was last known to take and give, and when that was learned.
        self._signatures: dict[tuple[str, int | None], tuple[RemoteSignature, float]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. A closed client can't be used again."""
        self._connection.close()

    def register(
        self,
        name: str,
        target: Any = None,
        *,
        source: str | Path | None = None,
        weights: Mapping[str, Any] | Path | None = None,
        function: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> VersionStatus:
        """Register a per-example function as a new version of model ``name``, and wait until it is AVAILABLE.

        ``target``: a plain function of one example (``if`` and ``while`` on tensors included), a
        ``tf.function``, a ``tf.Module``, a Keras model, or the path of a SavedModel directory or archive. A
        function is traced here, and saved with every variable that it reads.
        ``inputs``: by name a ``tf.TensorSpec``, an array that is one example, or a dict of ``dtype``, ``shape``
        and the details of a variable dimension (``max``, ``length_input``, ``lengths``). Not needed for a
        SavedModel, a built Keras model and a function with ``rowwise.example_model``.
        ``source``, in place of a target: the text of a Python module, or a Path of one, that the server traces itself,
        where its operator allows it. Its ``function`` (``predict``) reads ``weights``, arrays by name or the Path of an
        ``.npz``, as ``weights[name]``. Nothing of it runs here.
        ``spec``: the registration's other options, such as ``max_batch`` or ``allow_looped``. With ``activate=False``
        it is waited for until it is BUILT, and serves once it is activated.
        Shapes: those of one example; None where examples differ.
        Errors: BuildFailed with the reason; CannotTrace; WrongInputs; Superseded; TimedOut; ServerRefused.
        """
        if (target is None) == (source is None):
            raise WrongInputs("register: expected a target or a source, one of them")
        if source is not None:
            form = source_parts(source, weights=weights, function=function, inputs=inputs, spec=spec)
            return self._register_form(name, form, activates=spec.get("activate") is not False)
        if weights is not None or function is not None:
            raise WrongInputs("register: 'weights' and 'function' go with 'source'; a target has its own")
        with view_for(name, progress=self._progress) as view, tempfile.TemporaryDirectory(prefix="rowwise-") as scratch:
            submission = prepare(resolve(target), inputs=inputs, spec=spec, scratch=Path(scratch), view=view)
            with submission.archive.open("rb") as file:
                # The specification goes first, so that a wrong one is refused before the archive is read.
                parts = [
                    ("spec", (None, encode_json(submission.spec), "application/json")),
                    ("archive", (submission.archive.name, UploadReader(file, view.show), "application/octet-stream")),
                ]
                taken = self._connection.send_json(
                    "PUT", model_path(name), files=parts, timeout=httpx.Timeout(_UPLOAD_TIMEOUT_S)
                )
            return self._wait(name, taken, view, activates=submission.spec.get("activate") is not False)

    def _register_form(self, name: str, parts: Any, *, activates: bool) -> VersionStatus:
        with view_for(name, progress=self._progress) as view:
            taken = self._connection.send_json(
                "PUT", model_path(name), files=parts, timeout=httpx.Timeout(_UPLOAD_TIMEOUT_S)
            )
            return self._wait(name, taken, view, activates=activates)

    def register_import(self, name: str, import_path: str, **spec: Any) -> VersionStatus:
        """Register a function that the server imports itself, ``MODULE:FUNCTION``, and wait until it is AVAILABLE.

        The server's operator has to have allowed the package. Errors: as for ``register``.
        """
        with view_for(name, progress=self._progress) as view:
            body = encode_json({"import_path": import_path, **spec_as_json(spec)})
            taken = self._connection.send_json("PUT", model_path(name), content=body, headers=_JSON)
            return self._wait(name, taken, view, activates=spec.get("activate") is not False)

    def predict(self, name: str, /, **inputs: Any) -> Prediction:
        """Return the model's outputs for one example: an array if it has one output, else a dict of arrays.

        Shapes: inputs and outputs are those of one example, without a batch dimension.
        Errors: NotFound; WrongInputs; InvalidRequest; Overloaded with ``retry_after_s``; TimedOut.
        """
        return self._predict(name, [inputs], version=None)[0]

    def predict_many(
        self, name: str, examples: Iterable[Any], *, version: int | None = None, n_per_request: int = 256
    ) -> list[Prediction]:
        """Return the outputs for each of ``examples``, in order, ``n_per_request`` of them in a request.

        An example is a dict of the model's inputs, or a bare value where there is one input; each may have its
        own length in a variable dimension. ``version`` None asks the active one. Errors: as for ``predict``;
        one wrong example fails its request.
        """
        predictions: list[Prediction] = []
        for part in _parts(examples, n_per_request):
            predictions += self._predict(name, part, version=version)
        return predictions

    def gradient(self, name: str, example: Any, **options: Any) -> Prediction:
        """Return the gradient of a scalar output for one example: an array, or a dict if it is by several.

        ``options`` are those of ``derivative_many``. Shapes: those of what it is by. Errors: as for ``predict``.
        """
        return self.derivative_many("gradient", name, [example], **options)[0]

    def jacobian(self, name: str, example: Any, **options: Any) -> Prediction:
        """Return the Jacobian of an output for one example: an array, or a dict if it is by several.

        ``options`` are those of ``derivative_many``. Shapes: the output's, then that of what it is by. Errors: as
        for ``predict``.
        """
        return self.derivative_many("jacobian", name, [example], **options)[0]

    def hessian(self, name: str, example: Any, **options: Any) -> Prediction:
        """Return the second derivatives of a scalar output for one example, by pairs ``x,y`` if by several.

        ``options`` are those of ``derivative_many``. Errors: as for ``predict``.
        """
        return self.derivative_many("hessian", name, [example], **options)[0]

    def derivative_many(
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
        """Return a derivative that the model declares (gradient, jacobian or hessian) for each of ``examples``.

        ``output`` and ``wrt``, inputs or variables by name, are needed where the model declares more than one.
        Examples are those of ``predict_many``. Errors: as for ``predict``; InvalidRequest lists what there is.
        """
        chosen = query(kind, output, wrt)
        signature = derivative_signature(self._metadata(name, version), kind, chosen)
        results: list[Prediction] = []
        for part in _parts(examples, n_per_request):
            body = encode_instances(name, signature, part, chosen)
            path = model_path(name, version, f":{kind}")
            answer = self._connection.send_json("POST", path, content=body, headers=self._predict_headers)
            results += decode_predictions(name, signature, answer, n_examples=len(part))
        return results

    def models(self) -> list[VersionStatus]:
        """Return every version of every model that the server holds."""
        answer = self._connection.send_json("GET", "/v1/models")
        listed = answer.get("models") if isinstance(answer, dict) else None
        if not isinstance(listed, list):
            raise BadAnswer(f"the server's list of models is {str(answer)[:200]}; is it a Rowwise server?")
        return [VersionStatus.from_json(entry) for entry in listed]

    def certificate(self, name: str, version: int | None = None) -> dict[str, Any]:
        """Return how each op of the model was vectorized and how it was checked. None: the active version."""
        return self._document(name, version, "/certificate")

    def costs(self, name: str, version: int | None = None) -> dict[str, Any]:
        """Return the measured cost of every bucket in every execution mode. None: the active version."""
        return self._document(name, version, "/costs")

    def set_shadow(self, name: str, version: int, share: float) -> dict[str, Any]:
        """Let ``version`` run on a share of the live batches (0 ends it), answering nobody; return the comparison."""
        body = {"share": share}
        report: dict[str, Any] = self._connection.send_json("POST", model_path(name, version, ":shadow"), json=body)
        return report

    def shadow(self, name: str, version: int) -> dict[str, Any]:
        """Return how the answers of a version that runs as a shadow compare with those of the one that serves."""
        report: dict[str, Any] = self._connection.send_json("GET", model_path(name, version, "/shadow"))
        return report

    def delete(self, name: str, version: int | None = None) -> None:
        """Delete one version, or with None the model and all its versions."""
        self._connection.send("DELETE", model_path(name, version))
        self._signatures = {key: value for key, value in self._signatures.items() if key[0] != name}

    def ready(self) -> bool:
        """Return True if every active model is warm and the server is not shutting down."""
        try:
            self._connection.send("GET", "/v2/health/ready")
        except Overloaded:
            return False
        return True

    def _wait(self, name: str, taken: Any, view: RegistrationView, *, activates: bool) -> VersionStatus:
        status_url = taken.get("status_url") if isinstance(taken, dict) else None
        if not isinstance(status_url, str):
            raise BadAnswer(f"the server took the registration but named no status_url: {str(taken)[:200]}")
        # Only its path and query: the token must not follow a host that an answer names, and behind a proxy
        # the server may know itself by another one.
        url = urlsplit(status_url)
        path = url.path + (f"?{url.query}" if url.query else "")
        status = wait_until_available(
            lambda: VersionStatus.from_json(self._connection.send_json("GET", path)),
            view=view,
            clock=time.monotonic,
            sleep=time.sleep,
            timeout_s=self._register_timeout_s,
            activates=activates,
        )
        self._signatures.pop((name, None), None)
        return status

    def _document(self, name: str, version: int | None, tail: str) -> dict[str, Any]:
        chosen = self._active_version(name) if version is None else version
        document = self._connection.send_json("GET", model_path(name, chosen, tail))
        if not isinstance(document, dict):
            raise BadAnswer(f"model {name!r}: {tail.strip('/')} is no JSON object: {str(document)[:200]}")
        return document

    def _active_version(self, name: str) -> int:
        for status in self.models():
            if status.model == name and status.active:
                return status.version
        raise NotFound(404, f"model {name!r} has no active version; name a version")

    def _predict(self, name: str, examples: list[Any], *, version: int | None) -> list[Prediction]:
        signature = self._signature(name, version)
        try:
            return self._ask(name, version, signature, examples)
        except (BadAnswer, InvalidRequest, WrongInputs):
            # Perhaps the model is no longer the one that was known: another version may have been switched in.
            current = self._fetch_signature(name, version)
            if current == signature:
                raise
        return self._ask(name, version, current, examples)

    def _ask(self, name: str, version: int | None, signature: RemoteSignature, examples: list[Any]) -> list[Prediction]:
        body = encode_instances(name, signature, examples)
        path = model_path(name, version, ":predict")
        answer = self._connection.send_json("POST", path, content=body, headers=self._predict_headers)
        return decode_predictions(name, signature, answer, n_examples=len(examples))

    def _signature(self, name: str, version: int | None) -> RemoteSignature:
        known = self._signatures.get((name, version))
        if known is not None and time.monotonic() - known[1] < _SIGNATURE_LIFE_S:
            return known[0]
        return self._fetch_signature(name, version)

    def _metadata(self, name: str, version: int | None) -> Any:
        return self._connection.send_json("GET", model_path(name, version, "/metadata"))

    def _fetch_signature(self, name: str, version: int | None) -> RemoteSignature:
        signature = RemoteSignature.from_metadata(self._metadata(name, version))
        self._signatures[name, version] = (signature, time.monotonic())
        return signature


def _parts(entries: Iterable[_Entry], size: int) -> Iterator[list[_Entry]]:
    if size < 1:
        raise WrongInputs(f"n_per_request: expected at least 1, got {size}")
    rest = iter(entries)
    while part := list(islice(rest, size)):
        yield part
