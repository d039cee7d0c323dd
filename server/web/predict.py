"""A prediction from bytes to answer, without HTTP: any front end that has a path and a body can drive it.

``Predictor.start`` does everything that can be done at once; the call that it returns finishes by calling back
when the batch that held its rows is done. Nothing here awaits, so that a protocol can use it without a task.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from server.batching import DeadlineExceeded, ModelUnloaded
from server.errors import RowwiseError
from server.protocol import SHARED_PARSER_MAX_BYTES, TFS_JSON, Octets, WireFormat, WireRequest
from server.request_counts import VersionRequests
from server.rights import Rate
from server.web.derivatives import VERBS, choose_derivative, read_query
from server.web.errors import LabelNotFound, NotOffered, PathNotFound
from server.web.interfaces import Answer, EntryPoint, RequestMetrics, ServedModel, ServingCatalog, Ticket
from server.web.paths import VerbPath, version_number
from server.web.status import CLIENT_GONE, GONE, LATE, OURS, Reply, error_reply, internal_error_reply
from server.web.tracing import RequestTrace, Tracing

__all__ = ["PredictCall", "Predictor", "count_gone"]

_LOG = logging.getLogger("rowwise.web")

#: What can't stand inside a quoted string of a header.
_UNQUOTABLE = re.compile(r'[^\x20-\x7e]|["\\]')

#: Bodies with more bytes to parse are decoded in a thread, so that others are answered meanwhile: 256 KiB take some
#: milliseconds. What is shorter shares a parser, which only one thread may use.
_INLINE_BYTES = SHARED_PARSER_MAX_BYTES

#: How often a request whose version is unloaded before it is admitted is given to the version that took its place.
_MAX_ATTEMPTS = 3

_INSTEAD = {
    "classify": "this model declares no class labels",
    "regress": "this model declares no regression output",
}


class Predictor:
    """Starts predictions against a catalog and counts how they end."""

    def __init__(
        self, catalog: ServingCatalog, metrics: RequestMetrics, *, max_instances: int, tracing: Tracing | None = None
    ) -> None:
        self._tracing = tracing
        #: Whether each request is recorded apart.
        self.has_tracing = tracing is not None
        self._catalog = catalog
        self._metrics = metrics
        self.max_instances = max_instances
        #: One thread: its memory is that of one body, and the event loop competes with one for the interpreter.
        self._large = ThreadPoolExecutor(1, thread_name_prefix="rowwise-decode")

    def start(
        self,
        path: VerbPath,
        body: Octets,
        *,
        timeout_s: float | None,
        explain: bool,
        request_id: str,
        on_reply: Callable[[Reply], None],
        traceparent: bytes | None = None,
        received_s: float,
        caller: str | None,
        wire: WireFormat = TFS_JSON,
        rate: Rate | None = None,
    ) -> PredictCall:
        """Decode and admit a request. ``on_reply`` is called exactly once, here or later, unless it is abandoned.

        Units: ``timeout_s`` in seconds, counted from ``received_s``, when the request's headers were there, by the
            system's monotonic clock; None takes the model's own. ``caller`` tells whose bad rows are whose, ``wire``
            how the body is read and the answer written, ``rate`` what its rows are charged to, beyond the first.
        """
        call = PredictCall(request_id, on_reply, explain=explain)
        if self._tracing is not None:
            call.trace = self._tracing.begin(traceparent, path, request_id)
        call.deadline = (received_s, timeout_s)
        call.caller = caller
        call.wire = wire
        call.rate = rate
        try:
            self._decode(call, path, body)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets one answer
            self._failed(call, error)
        return call

    def _decode(self, call: PredictCall, path: VerbPath, body: Octets, *, attempt: int = 1) -> None:
        """Find who answers, and admit the rows, now or when a large body is decoded."""
        model = self.resolve(path)
        call.metrics = self._metrics.of_version(model.name, model.version)
        served: EntryPoint = model
        rest = body
        if path.verb != "predict":
            query, rest = read_query(bytes(body))
            served = choose_derivative(model, path.verb, query)
            call.metrics = self._metrics.of_version(served.name, served.version, served.entry)
        received_s, timeout_s = call.deadline
        if timeout_s is not None and time.monotonic() - received_s >= timeout_s:
            # Not worth decoding. On a loop that is behind, this is what keeps it from falling further.
            raise DeadlineExceeded(f"the deadline passed {timeout_s:g} s after the request came, before it was read")
        decode = call.wire.decode
        if len(rest) > _INLINE_BYTES and call.wire.n_parsed(rest, served) > _INLINE_BYTES:
            decoding = self._large.submit(decode, rest, served, max_instances=self.max_instances)
            again = partial(self._decode, call, path, body, attempt=attempt + 1) if attempt < _MAX_ATTEMPTS else None
            asyncio.wrap_future(decoding).add_done_callback(partial(self._decoded, call, served, again))
        else:
            self._admit(call, served, decode(rest, served, max_instances=self.max_instances))

    def _decoded(
        self,
        call: PredictCall,
        served: EntryPoint,
        again: Callable[[], None] | None,
        decoding: asyncio.Future[WireRequest],
    ) -> None:
        """Go on with a body that was decoded elsewhere; with another version if its own has been unloaded meanwhile."""
        if call.has_ended:
            return
        try:
            request = decoding.result()
            try:
                self._admit(call, served, request)
            except ModelUnloaded:
                if again is None:
                    raise
                again()
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets one answer
            self._failed(call, error)

    @staticmethod
    def _admit(call: PredictCall, served: EntryPoint, request: WireRequest) -> None:
        call.request = request
        if call.rate is not None:
            call.rate.charge(request.rows.n - 1)
            call.rate = None  # not again, if another version takes its place
        received_s, timeout_s = call.deadline
        if request.timeout_s is not None:
            timeout_s = request.timeout_s if timeout_s is None else min(timeout_s, request.timeout_s)
        ticket = served.predict(
            request.rows,
            timeout_s=timeout_s,
            on_done=call.done,
            spent_s=time.monotonic() - received_s,
            caller=call.caller,
            priority=request.priority,
        )
        if not call.has_ended:
            call.ticket = ticket

    def _failed(self, call: PredictCall, error: Exception) -> None:
        if isinstance(error, RowwiseError):
            self.refuse(call, error)
            return
        _LOG.error("request %s failed", call.request_id, exc_info=error, extra={"request_id": call.request_id})
        call.finish(internal_error_reply(call.request_id))
        if call.metrics is None:
            self._metrics.request_without_model(500, reason=OURS)

    def refused(self, error: RowwiseError) -> Reply:
        """Return the answer to a request that did not get as far as its model, and count it."""
        reply = error_reply(error)
        self._metrics.request_without_model(reply.status, reason=reply.reason)
        return reply

    def refuse(self, call: PredictCall, error: RowwiseError) -> None:
        """End a call with an error before it was admitted."""
        reply = error_reply(error)
        if call.metrics is None:
            self._metrics.request_without_model(reply.status, reason=reply.reason)
        call.finish(reply)

    def count_failed(self) -> None:
        """Count a request that a bug of ours kept from its model."""
        self._metrics.request_without_model(500, reason=OURS)

    def metrics_of(self, model: ServedModel) -> VersionRequests:
        """Return where the predictions of a version are counted."""
        return self._metrics.of_version(model.name, model.version)

    def resolve(self, path: VerbPath) -> ServedModel:
        """Return who answers a path. Errors: those of the catalog; LabelNotFound, NotOffered, VersionMalformed."""
        version = None if path.version is None else version_number(path.version)
        if path.label is not None:
            version = labelled_version(self._catalog, path.model, path.label)
        served = self._catalog.resolve(path.model, version)
        if path.verb == "predict" or path.verb in VERBS:
            return served
        if path.verb in _INSTEAD:
            raise NotOffered(f"model {path.model!r}: {_INSTEAD[path.verb]}; use ':predict' instead of ':{path.verb}'")
        raise PathNotFound(f"':{path.verb[:40]}' is nothing that a model can be asked; use ':predict'")


def labelled_version(catalog: ServingCatalog, model: str, label: str) -> int:
    """Return the newest version that carries a label. Errors: ModelNotFound, LabelNotFound."""
    records = catalog.versions(model)
    carrying = [record.version for record in records if label in record.labels]
    if not carrying:
        raise LabelNotFound(model, label, sorted({known for record in records for known in record.labels}))
    return max(carrying)


def count_gone(metrics: VersionRequests, status: int) -> None:
    """Count a request whose caller waits no more: it has left, or its deadline has passed."""
    metrics.request(status, reason=GONE if status == CLIENT_GONE else LATE)


def _nobody(_: Reply) -> None:
    """Take a reply that nobody waits for."""


class PredictCall:
    """One request on its way. Ends once: by ``done``, by ``finish``, or by ``abandon``."""

    __slots__ = (
        "_explain",
        "_on_reply",
        "caller",
        "deadline",
        "has_ended",
        "metrics",
        "rate",
        "request",
        "request_id",
        "ticket",
        "trace",
        "wire",
    )

    def __init__(self, request_id: str, on_reply: Callable[[Reply], None], *, explain: bool) -> None:
        self.request_id = request_id
        self._on_reply = on_reply
        self._explain = explain
        #: True: it was answered, or nobody waits for it.
        self.has_ended = False
        #: When its headers were there, and the seconds that it may take from then on, None where it names none.
        self.deadline: tuple[float, float | None] = (0.0, None)
        self.caller: str | None = None
        #: None until a version is known; then every end is counted there.
        self.metrics: VersionRequests | None = None
        self.wire: WireFormat = TFS_JSON
        #: What its rows are charged to; None: nothing, or they are.
        self.rate: Rate | None = None
        #: None until its body was read.
        self.request: WireRequest | None = None
        #: None until admitted.
        self.ticket: Ticket | None = None
        #: None: it is not recorded.
        self.trace: RequestTrace | None = None

    def done(self, answer: Answer) -> None:
        """Take the answer of the request's rows."""
        if self.has_ended:
            return
        try:
            reply = error_reply(answer.error) if answer.error is not None else self._success(answer)
        except RowwiseError as error:  # The format has no form for this answer.
            reply = error_reply(error)
        except Exception:  # noqa: BLE001 - a bug of ours; the caller still gets one answer
            _LOG.exception(
                "request %s: its answer could not be written", self.request_id, extra={"request_id": self.request_id}
            )
            reply = internal_error_reply(self.request_id)
        self.finish(reply, answer)

    def finish(self, reply: Reply, answer: Answer | None = None) -> None:
        """End with a reply."""
        if self.has_ended:
            return
        self.has_ended = True
        if self.metrics is not None:
            self.metrics.request(reply.status, reason=reply.reason)
        if self.trace is not None:
            self.trace.end(reply.status, answer)
        on_reply = self._on_reply
        self._let_go()
        on_reply(reply)

    def abandon(self, status: int = CLIENT_GONE) -> None:
        """The caller waits no more: take the rows back if they still wait, and send nothing.

        ``status`` is what is counted: that it left, or that its deadline passed.
        """
        if self.has_ended:
            return
        self.has_ended = True
        if self.metrics is not None:
            count_gone(self.metrics, status)
        if self.trace is not None:
            self.trace.end(status, None)
        if self.ticket is not None:
            self.ticket.cancel()
        self._let_go()

    def _let_go(self) -> None:
        """Hold nothing more. Who is called back holds this call: its tensors would wait for the garbage collector."""
        self._on_reply = _nobody
        self.request = self.ticket = None
        self.wire = TFS_JSON

    def _success(self, answer: Answer) -> Reply:
        assert self.request is not None
        body, headers = self.request.encode(answer.outputs)
        if self.metrics is not None:
            self.metrics.waited(answer.queue_s)
        if self._explain:
            headers = (*headers, (b"server-timing", _server_timing(answer)))
        return Reply(200, body, headers)


def _server_timing(answer: Answer) -> bytes:
    """Write how the rows were batched, in milliseconds as that header's ``dur`` wants."""
    padding = answer.bucket - answer.batch_rows
    reason = _UNQUOTABLE.sub("?", answer.reason)
    return (
        f"queue;dur={answer.queue_s * 1e3:.3f}, compute;dur={answer.compute_s * 1e3:.3f}, "
        f'batch;desc="id={answer.batch_id} rows={answer.batch_rows} bucket={answer.bucket} padding={padding} '
        f'reason={reason}"'
    ).encode("ascii")
