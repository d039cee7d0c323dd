"""Plain predictions that came together are read together, admitted together, and answered together.

A request goes through the whole of the server: parsing, decoding, admission, planning, execution, writing. One after
the other, each request finds the processor's caches full of what the last step of the one before it needed: decoding
one body takes three times as long there as in a row of 32. So what arrives in one tick of the event loop waits for the
tick's end, and then takes each step as a row. Nobody waits for anybody who has not come yet,
but for callers who are about to return where the batch would wait for them anyway (``server.batching.returning``), and
for a millisecond while every executor has enough to do: no batch could begin with it sooner.

What is gathered are predictions that carry nothing of their own (see ``known_heads`` and ``rpc.plain_heads``). Each is
an item of its own to the core, which knows nothing of this: it is cancelled, refused, and isolated alone. As soon as
anything about one is unusual, it goes the way of all others, which finds out what to say.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias

from server.errors import RowwiseError
from server.protocol import AnswerForm, Column, ManyRequests
from server.request_counts import VersionRequests
from server.web.gathered_request import GatheredRequest
from server.web.interfaces import Answer, ServedModel
from server.web.paths import VerbPath
from server.web.predict import Predictor, count_gone
from server.web.status import Reply, error_reply, internal_error_reply

__all__ = ["Gathering"]

_LOG = logging.getLogger("rowwise.web")

#: Bodies that are read together: fewer than this many bytes in all, which the shared parser takes.
_MAX_BYTES = 2**17
#: And at most so many, so that a bad one among them costs the others little.
_MAX_TOGETHER = 128
#: Deadlines that differ by less than this share of the time that is left, or this many seconds of a time that the model
#: sets, are taken for one, the first of them: heads of one tick's bodies came at different times.
_SAME_SHARE = 0.01
_SAME_S = 0.02
#: Seconds for which the sockets are looked at again and again while others are about to come.
_LOOK_S = 1e-3
#: While no batch can begin for this many seconds, requests are read after a pause, or when so many are here.
_BUSY_S, _PAUSE_S, _MAX_PAUSING = 3e-3, 1e-3, 32

#: Whose rows ran, who takes them, where they are among which outputs, and how long they waited.
_Done: TypeAlias = "tuple[GatheredRequest, _Together, Sequence[Column], int, int, float]"


class Gathering:
    """The plain predictions of this tick, and those whose batch has run in it."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._arrived: list[GatheredRequest] = []
        self._arrived_s = 0.0
        self._done: list[_Done] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Set while what has arrived is not looked at, as no batch could begin with it.
        self._pause: asyncio.TimerHandle | None = None

    def add(self, hot: GatheredRequest) -> None:
        """Take a request whose body has come whole."""
        hot.comeback.came()
        if not self._arrived:
            self._arrived_s = time.monotonic()
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._begin)
        self._arrived.append(hot)
        if self._pause is not None and len(self._arrived) >= _MAX_PAUSING:
            assert self._loop is not None, "it was set when the first of them came"
            self._end_pause()
            self._loop.call_soon(self._start)

    def read_now(self) -> None:
        """Read what has come: from now on nothing is admitted any more."""
        self._start()

    def done(self, done: _Done) -> None:
        """Take a request whose rows have run."""
        if not self._done:
            assert self._loop is not None, "it was set when the request came"
            self._loop.call_soon(self._answer)
        self._done.append(done)

    # Coming in.

    def _begin(self) -> None:
        """Start what has come, or look once more what comes: what follows at once is cheaper to read together."""
        assert self._loop is not None, "it was set when the request came"
        if not self._arrived:
            return  # they were read before the tick's end
        try:
            model = self._predictor.resolve(self._arrived[0].path)
        except RowwiseError:
            self._start()
            return
        if model.awaits(len(self._arrived)) and time.monotonic() - self._arrived_s < _LOOK_S:
            # Those who came would only wait for others if they were admitted now.
            self._loop.call_soon(self._begin)
        elif model.free_in_s >= _BUSY_S and len(self._arrived) < _MAX_PAUSING:
            self._pause = self._loop.call_later(_PAUSE_S, self._start)
        else:
            self._start()

    def _start(self) -> None:
        self._end_pause()
        arrived, self._arrived = self._arrived, []
        # A path that was seen before is the same object each time.
        alike: dict[tuple[int, int | None, int], list[GatheredRequest]] = {}
        for hot in arrived:
            timeout_s = hot.timeout_s
            patience = None if timeout_s is None else _patience(timeout_s)
            alike.setdefault((id(hot.path), patience, self._waited(hot)), []).append(hot)
        for hots in alike.values():
            for part in _parts(hots):
                self._start_safely(hots[0].path, part)

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _waited(self, hot: GatheredRequest) -> int:
        """Return how long a request has waited for its body, as far as that tells its deadline from others'."""
        if not hot.received_s:
            return 0
        same_s = _SAME_S if hot.timeout_s is None else _SAME_SHARE * hot.timeout_s
        return int((self._arrived_s - hot.received_s) / same_s)

    def _since_s(self, hots: list[GatheredRequest]) -> float:
        """Return when the first of some requests came."""
        return min(hot.received_s or self._arrived_s for hot in hots)

    def _start_safely(self, path: VerbPath, hots: list[GatheredRequest]) -> None:
        """Start requests so that each gets an answer, whatever a bug of ours does on the way."""
        try:
            self._start_together(path, hots)
        except Exception:  # noqa: BLE001 - each caller gets one answer
            _LOG.exception("requests that came together failed: %s", ", ".join(hot.request_id for hot in hots))
            for hot in hots:
                if not hot.is_gone and hot.reply is None and hot.handle is None and hot.call is None:
                    self._predictor.count_failed()
                    hot.replied(internal_error_reply(hot.request_id))

    def _start_together(self, path: VerbPath, hots: list[GatheredRequest]) -> None:
        predictor = self._predictor
        try:
            model = predictor.resolve(path)
            timeout_s, spent_s = _timeout_s(hots), time.monotonic() - self._since_s(hots)
            if timeout_s is not None and spent_s >= timeout_s:
                # Not worth reading; alone, each is told that it is late, if it is.
                for hot in hots:
                    self._start_alone(hot)
                return
            refusal = model.refuses_all(timeout_s=timeout_s, spent_s=spent_s)
            if refusal is not None:
                self._refuse(model, hots, refusal)
                return
            if len(hots) == 1 and (hots[0].is_gone or hots[0].wire.prefers_one):
                if hots[0].is_gone:
                    count_gone(predictor.metrics_of(model), hots[0].gone_status)
                else:
                    hots[0].returning = model.returning
                    self._start_alone(hots[0])
                return
            read = hots[0].wire.decode_many(
                [bytes(hot.body[0]) for hot in hots],
                [hot.wire for hot in hots],
                model,
                max_instances=predictor.max_instances,
            )
        except RowwiseError:
            for hot in hots:
                self._start_alone(hot)
            return
        left = set(range(len(hots)))
        for many in read.groups:
            left.difference_update(many.members)
            self._admit(model, [hots[member] for member in many.members], many)
        if not left:
            return
        left.difference_update(read.alone)
        for member in read.alone:
            self._start_alone(hots[member])
        rest = [hots[member] for member in sorted(left)]
        if len(rest) <= 2:
            for hot in rest:
                self._start_alone(hot)
        elif len(rest) < len(hots):
            self._start_together(path, rest)
        else:
            # One of them is unusual: the others need not suffer for it.
            middle = len(rest) // 2
            self._start_together(path, rest[:middle])
            self._start_together(path, rest[middle:])

    def _start_alone(self, hot: GatheredRequest) -> None:
        hot.call = self._predictor.start(
            hot.path,
            hot.body[0],
            timeout_s=hot.timeout_s,
            explain=False,
            request_id=hot.request_id,
            on_reply=hot.replied,
            received_s=hot.received_s or self._arrived_s,
            caller=hot.caller,
            wire=hot.wire,
            rate=hot.rate,
        )
        hot.body = []
        if hot.is_gone:
            hot.call.abandon(hot.gone_status)

    def _refuse(self, model: ServedModel, hots: list[GatheredRequest], refusal: RowwiseError) -> None:
        """Send all away with one answer, unread: under overload, what is spent on them is taken from the others."""
        metrics, reply = self._predictor.metrics_of(model), error_reply(refusal)
        for hot in hots:
            if hot.is_gone:
                count_gone(metrics, hot.gone_status)
            else:
                metrics.request(reply.status, reason=reply.reason)
                hot.replied(reply)

    def _admit(self, model: ServedModel, hots: list[GatheredRequest], many: ManyRequests) -> None:
        metrics = self._predictor.metrics_of(model)
        together = _Together(self, model, many.form, metrics)
        counts = many.counts
        for hot, id_text in zip(hots, many.id_texts, strict=True):
            hot.body = []
            hot.together = together
            hot.id_text = id_text
        if any(hot.rate is not None for hot in hots):
            _charge(hots, counts)
        if any(hot.is_gone for hot in hots):
            # Their rows stay where they are, and no item leads to them.
            firsts = _firsts(counts)
            kept = [number for number, hot in enumerate(hots) if not hot.is_gone]
            for hot in hots:
                if hot.is_gone:
                    count_gone(metrics, hot.gone_status)
            hots, counts = [hots[number] for number in kept], [counts[number] for number in kept]
            places = [firsts[number] for number in kept]
        else:
            places = _firsts(counts)
        if hots:
            handles = model.predict_many(
                many.rows,
                counts,
                places,
                tags=hots,
                callers=[hot.caller for hot in hots],
                timeout_s=_timeout_s(hots),
                spent_s=time.monotonic() - self._since_s(hots),
                taker=together,
            )
            for hot, handle in zip(hots, handles, strict=True):
                hot.handle = handle

    # Going out.

    def _answer(self) -> None:
        done, self._done = self._done, []
        first = 0
        while first < len(done):
            _, together, outputs, *_ = done[first]
            end = first + 1
            while end < len(done) and done[end][2] is outputs and done[end][1].form is together.form:
                end += 1
            together.answer(done[first:end], outputs)
            first = end


class _Together:
    """Requests of one version that were admitted together. A ``Taker`` of answers."""

    __slots__ = ("_gathering", "_metrics", "_model", "_returning", "form")

    def __init__(self, gathering: Gathering, model: ServedModel, form: AnswerForm, metrics: VersionRequests) -> None:
        self._gathering = gathering
        self._model = model
        self.form = form
        self._metrics = metrics
        self._returning = model.returning

    def ran(self, tag: object, outputs: Sequence[Column], start: int, stop: int, queue_s: float) -> None:
        """Take a request's rows of a batch's outputs."""
        self._gathering.done((tag, self, outputs, start, stop, queue_s))  # type: ignore[arg-type]

    def ended(self, tag: object, answer: Answer) -> None:
        """Take an answer that did not come out of one batch whole: parts, or an error."""
        hot: GatheredRequest = tag  # type: ignore[assignment]
        if hot.is_gone:
            return
        if answer.error is not None:
            self._reply(hot, error_reply(answer.error))
        else:
            self._metrics.waited(answer.queue_s)
            self._write(hot, answer.outputs)

    def abandon(self, hot: GatheredRequest) -> None:
        """The caller of a request is gone: take its rows back if they still wait."""
        count_gone(self._metrics, hot.gone_status)
        self._model.take_back(hot.handle)

    def answer(self, done: Sequence[_Done], outputs: Sequence[Column]) -> None:
        """Answer requests whose rows are in the same outputs."""
        # Most of them came in one tick, and so waited equally long.
        for queue_s, n in Counter(entry[5] for entry in done).items():
            self._metrics.waited(queue_s, n)
        n_answered = 0
        returning = self._returning
        try:
            texts = self.form.texts(outputs, max(entry[4] for entry in done))
            for hot, _, _, start, stop, _ in done:
                if texts is not None and not hot.is_gone:
                    if returning is not None:
                        hot.comeback.answered(returning, stop - start)
                    hot.handle = None  # each holds the other, and would wait for the garbage collector
                    hot.answered(texts.answer(start, stop, hot.id_text))
                    n_answered += 1
        except Exception:  # noqa: BLE001 - a bug of ours
            _LOG.exception(
                "answers could not be written together: %s", ", ".join(entry[0].request_id for entry in done)
            )
        if n_answered:
            self._metrics.request(200, n_answered)
        if n_answered == len(done):
            return
        # Those that could not be written together are written alone, which says what is wrong with whose.
        for hot, _, _, start, stop, _ in done:
            if not hot.is_gone and not hot.is_answered:
                self._write(hot, [column[start:stop] for column in outputs])

    def _write(self, hot: GatheredRequest, outputs: Sequence[Column]) -> None:
        try:
            reply = Reply(200, *self.form.one(outputs, hot.id_text))
        except RowwiseError as error:  # The format has no form for this answer.
            reply = error_reply(error)
        except Exception:  # noqa: BLE001 - a bug of ours; the caller still gets one answer
            _LOG.exception(
                "request %s: its answer could not be written", hot.request_id, extra={"request_id": hot.request_id}
            )
            reply = internal_error_reply(hot.request_id)
        self._reply(hot, reply)

    def _reply(self, hot: GatheredRequest, reply: Reply) -> None:
        self._metrics.request(reply.status, reason=reply.reason)
        hot.replied(reply)


def _parts(hots: list[GatheredRequest]) -> Iterator[list[GatheredRequest]]:
    """Yield the requests in rows that are not too long to be read together."""
    if len(hots) <= _MAX_TOGETHER and sum(len(hot.body[0]) for hot in hots) <= _MAX_BYTES:
        yield hots
        return
    part: list[GatheredRequest] = []
    n_bytes = 0
    for hot in hots:
        size = len(hot.body[0])
        if part and (n_bytes + size > _MAX_BYTES or len(part) == _MAX_TOGETHER):
            yield part
            part, n_bytes = [], 0
        part.append(hot)
        n_bytes += size
    yield part


def _patience(timeout_s: float) -> int:
    """Return the same number for deadlines that may be taken for one."""
    return int(math.log(max(timeout_s, 1e-9)) / _SAME_SHARE)


def _timeout_s(hots: Sequence[GatheredRequest]) -> float | None:
    """Return the deadline of requests whose deadlines may be taken for one."""
    return None if hots[0].timeout_s is None else min(hot.timeout_s for hot in hots if hot.timeout_s is not None)


def _charge(hots: Sequence[GatheredRequest], counts: Sequence[int]) -> None:
    for hot, n_rows in zip(hots, counts, strict=True):
        if hot.rate is not None and n_rows > 1:
            hot.rate.charge(n_rows - 1)


def _firsts(counts: Sequence[int]) -> list[int]:
    return [0, *accumulate(counts[:-1])]
