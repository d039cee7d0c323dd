"""What each call of a client does, as steps (see ``_steps``): predictions, derivatives, and questions about models."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from rowwise._derivatives import derivative_signature, query
from rowwise._http import answer_json, model_path
from rowwise._metadata import RemoteSignature
from rowwise._predictions import Prediction, decode_predictions, encode_instances
from rowwise._retries import Retries
from rowwise._steps import Send, Steps
from rowwise._tensors import JSON_LENGTH, TensorForm
from rowwise.errors import BadAnswer, InvalidRequest, NotFound, Overloaded, WrongInputs
from rowwise.values import encode_json
from rowwise.version_status import VersionStatus

__all__ = ["JSON", "Calls"]

_Entry = TypeVar("_Entry")

JSON = {"Content-Type": "application/json"}
#: How long what is known of a model's inputs and outputs is trusted, seconds. A version that differs in more
#: than dtypes is noticed at once, by its answers.
_SIGNATURE_LIFE_S = 60.0


class Calls:
    """The calls of one client, and what it remembers of models. ``binary``: False sends JSON alone."""

    def __init__(self, *, timeout_s: float, retries: Retries, binary: bool) -> None:
        self.timeout_s = timeout_s
        self._retries = retries
        self._binary = binary
        #: What each (model, version) was last known to take and give, how that travels, and when it was learned.
        self._signatures: dict[tuple[str, int | None], tuple[RemoteSignature, TensorForm, float]] = {}

    # Sending.

    def send(self, request: Send) -> Steps[Any]:
        """Send a request, again where that is safe. Errors: ConnectionFailed, TimedOut, ServerRefused."""
        timeout_s = self.timeout_s if request.timeout_s is None else request.timeout_s
        return self._retries.send(request, timeout_s=timeout_s)

    def ask(self, path: str) -> Steps[Any]:
        """Return the JSON of a question's answer."""
        request = Send(method="GET", path=path, repeats=True)
        return answer_json(request, (yield from self.send(request)))

    def tell(self, method: str, path: str, value: Any = None) -> Steps[Any]:
        """Send what changes something, and return its answer's JSON; None where it has none."""
        content = None if value is None else encode_json(value)
        request = Send(method=method, path=path, content=content, headers=JSON if content else {})
        answer = yield from self.send(request)
        return answer_json(request, answer) if answer.content else None

    # Predicting.

    def predict(self, name: str, examples: Sequence[Any], *, version: int | None) -> Steps[list[Prediction]]:
        """Return the outputs of examples that go in one request."""
        signature, form = yield from self._known(name, version)
        try:
            return (yield from self._predict(name, version, signature, form, examples))
        except (BadAnswer, InvalidRequest, WrongInputs):
            # Perhaps the model is no longer the one that was known: another version may have been switched in.
            current, form = yield from self._learn(name, version)
            if current == signature:
                raise
        return (yield from self._predict(name, version, current, form, examples))

    def predict_many(
        self, name: str, examples: Iterable[Any], *, version: int | None, n_per_request: int
    ) -> Steps[list[Prediction]]:
        """Return the outputs of examples, some of them in each request."""
        predictions: list[Prediction] = []
        for part in _parts(examples, n_per_request):
            predictions += yield from self.predict(name, part, version=version)
        return predictions

    def _predict(
        self, name: str, version: int | None, signature: RemoteSignature, form: TensorForm, examples: Sequence[Any]
    ) -> Steps[list[Prediction]]:
        encoded = form.encode(examples) if self._binary else None
        if encoded is None:
            body = encode_instances(name, signature, examples)
            answer = yield from self._post(model_path(name, version, ":predict"), body)
            return decode_predictions(name, signature, answer, n_examples=len(examples))
        body, json_length = encoded
        request = Send(
            method="POST",
            path=model_path(name, version, "/infer", api="v2"),
            content=body,
            headers={"Content-Type": "application/octet-stream", JSON_LENGTH: str(json_length)},
            repeats=True,
            tells_deadline=True,
        )
        answer = yield from self.send(request)
        return form.decode(name, answer.content, answer.headers.get(JSON_LENGTH), n_examples=len(examples))

    def _post(self, path: str, body: bytes) -> Steps[Any]:
        """Send examples as JSON and return the answer's."""
        request = Send(method="POST", path=path, content=body, headers=JSON, repeats=True, tells_deadline=True)
        return answer_json(request, (yield from self.send(request)))

    def derivative_many(
        self,
        kind: str,
        name: str,
        examples: Iterable[Any],
        *,
        output: str | None,
        wrt: str | Sequence[str] | None,
        version: int | None,
        n_per_request: int,
    ) -> Steps[list[Prediction]]:
        """Return a derivative for each of some examples."""
        chosen = query(kind, output, wrt)
        metadata = yield from self.ask(model_path(name, version, "/metadata"))
        signature = derivative_signature(metadata, kind, chosen)
        results: list[Prediction] = []
        for part in _parts(examples, n_per_request):
            body = encode_instances(name, signature, part, chosen)
            answer = yield from self._post(model_path(name, version, f":{kind}"), body)
            results += decode_predictions(name, signature, answer, n_examples=len(part))
        return results

    # Models.

    def models(self) -> Steps[list[VersionStatus]]:
        """Return every version of every model."""
        answer = yield from self.ask("/v1/models")
        listed = answer.get("models") if isinstance(answer, dict) else None
        if not isinstance(listed, list):
            raise BadAnswer(f"the server's list of models is {str(answer)[:200]}; is it a Rowwise server?")
        return [VersionStatus.from_json(entry) for entry in listed]

    def document(self, name: str, version: int | None, tail: str) -> Steps[dict[str, Any]]:
        """Return what the builder wrote beside a version; None: the active one."""
        chosen = (yield from self._active_version(name)) if version is None else version
        document = yield from self.ask(model_path(name, chosen, tail))
        if not isinstance(document, dict):
            raise BadAnswer(f"model {name!r}: {tail.strip('/')} is no JSON object: {str(document)[:200]}")
        return document

    def metadata(self, name: str, version: int | None) -> Steps[dict[str, Any]]:
        """Return what a version takes and gives; None: the active one."""
        metadata = yield from self.ask(model_path(name, version, "/metadata"))
        if not isinstance(metadata, dict):
            raise BadAnswer(f"model {name!r}: its metadata is no JSON object: {str(metadata)[:200]}")
        return metadata

    def ready(self) -> Steps[bool]:
        """Return whether the server is."""
        try:
            yield Send(method="GET", path="/v2/health/ready", timeout_s=self.timeout_s)
        except Overloaded:
            return False
        return True

    def delete(self, name: str, version: int | None) -> Steps[None]:
        """Delete a version, or a model."""
        yield from self.tell("DELETE", model_path(name, version))
        self.forget(name)

    def forget(self, name: str) -> None:
        """Trust nothing that is known of a model."""
        self._signatures = {key: value for key, value in self._signatures.items() if key[0] != name}

    def _active_version(self, name: str) -> Steps[int]:
        for status in (yield from self.models()):
            if status.model == name and status.active:
                return status.version
        raise NotFound(404, f"model {name!r} has no active version; name a version")

    def _known(self, name: str, version: int | None) -> Steps[tuple[RemoteSignature, TensorForm]]:
        known = self._signatures.get((name, version))
        if known is not None and time.monotonic() - known[2] < _SIGNATURE_LIFE_S:
            return known[0], known[1]
        return (yield from self._learn(name, version))

    def _learn(self, name: str, version: int | None) -> Steps[tuple[RemoteSignature, TensorForm]]:
        metadata = yield from self.ask(model_path(name, version, "/metadata"))
        signature = RemoteSignature.from_metadata(metadata)
        form = TensorForm(signature)
        self._signatures[name, version] = (signature, form, time.monotonic())
        return signature, form


def _parts(entries: Iterable[_Entry], size: int) -> Iterator[list[_Entry]]:
    if size < 1:
        raise WrongInputs(f"n_per_request: expected at least 1, got {size}")
    rest = iter(entries)
    while part := list(islice(rest, size)):
        yield part
