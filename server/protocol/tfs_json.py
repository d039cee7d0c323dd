"""TensorFlow Serving's REST form of a prediction: request bytes to rows, outputs to answer bytes.

A request is tried by up to three of these readers, fastest first (see each module's measurements)::

    SkeletonReader one numeric input, row form       numbers never become Python objects; short innermost arrays
    BufferReader   one numeric input, row form       numbers never become Python objects
    TypedReader    numbers and booleans              structure checked while parsing
    ExactReader    everything                        the definition; the only one that raises

All but the last accept a subset of what the last accepts, and give the same arrays; a property test holds them to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from server.protocol.by_signature import BySignature
from server.protocol.errors import ProtocolError, UnknownSignature
from server.protocol.rows import JSON, Column, Encoded, Octets, PredictRequest, Rows, end_to_end
from server.protocol.seeds import fresh_seeds
from server.protocol.tfs_buffer import BufferReader
from server.protocol.tfs_encode import encode_predict
from server.protocol.tfs_exact import ExactReader
from server.protocol.tfs_many import RowTexts, row_texts
from server.protocol.tfs_skeleton import SkeletonReader
from server.protocol.tfs_typed import TypedReader
from server.protocol.wire import Asked, ManyRequests, ReadTogether
from server.signature import ModelSignature

__all__ = ["TFS_JSON", "PredictCodec", "codec_for", "decode_predict", "encode_predict"]

#: Names by which a request may ask for the only signature that a model has.
_SIGNATURE_NAMES = frozenset({None, "", "serving_default"})
_JSON_ONLY = (JSON,)


class PredictCodec:
    """Decodes and encodes predictions of one signature. Make one for each signature and keep it.

    It is the ``AnswerForm`` of requests in row form, too.
    """

    __slots__ = ("_exact", "_many", "_names", "_readers", "signature")

    def __init__(self, signature: ModelSignature) -> None:
        self.signature = signature
        bare = signature.without_optional
        buffer = SkeletonReader.compile(bare) or BufferReader.compile(bare)
        readers: list[tuple[SkeletonReader | BufferReader | TypedReader | None, ModelSignature]] = [
            (buffer, bare),
            (TypedReader.compile(bare), bare),
        ]
        if bare is not signature:
            readers.append((TypedReader.compile(signature), signature))
        #: With each whether it reads requests that leave the optional inputs out.
        self._readers = tuple((reader, read is not signature) for reader, read in readers if reader is not None)
        self._many = buffer if buffer is not None and bare is signature and buffer.reads_many else None
        self._names = [tensor.name for tensor in signature.outputs]
        self._exact = ExactReader(signature)

    def decode(self, body: bytes, *, max_instances: int) -> PredictRequest:
        """Read a request body. Errors: every ProtocolError."""
        for reader, leaves_out in self._readers:
            request = reader.decode(body, max_instances=max_instances)
            if request is not None:
                if leaves_out:
                    request.rows.columns = self._filled(request.rows)
                break
        else:
            request = self._exact.decode(body, max_instances=max_instances)
        if request.signature_name not in _SIGNATURE_NAMES:
            raise UnknownSignature(str(request.signature_name))
        request.codec = self
        return request

    def decode_many(self, bodies: Sequence[bytes], *, max_instances: int) -> ReadTogether:
        """Read several requests in row form, at once where that can be done, or one by one."""
        if self._many is None:
            return self._decode_each(bodies, max_instances)
        found = self._many.decode_many(bodies, max_instances=max_instances)
        if found is None:
            return ReadTogether()
        column, counts = found
        return self._together(range(len(bodies)), Rows(len(column), (column,)), counts)

    def _decode_each(self, bodies: Sequence[bytes], max_instances: int) -> ReadTogether:
        parts: dict[int, Rows] = {}
        for member, body in enumerate(bodies):
            try:
                request = self.decode(body, max_instances=max_instances)
            except ProtocolError:
                continue  # alone, it is told
            if request.row_form:
                parts[member] = request.rows
        alone = [member for member in range(len(bodies)) if member not in parts]
        if not parts:
            return ReadTogether(alone=alone)
        each = list(parts.values())
        return self._together(list(parts), end_to_end(each), [rows.n for rows in each], alone)

    def _together(
        self, members: Sequence[int], rows: Rows, counts: list[int], alone: Sequence[int] = ()
    ) -> ReadTogether:
        return ReadTogether([ManyRequests(members, rows, counts, self, [None] * len(counts))], list(alone))

    def texts(self, outputs: Sequence[Column], n_rows: int) -> RowTexts | None:
        """Write the first ``n_rows`` of a batch's outputs, or return None: then each answer is written by itself."""
        return row_texts(outputs, self._names, n_rows)

    def one(self, outputs: Sequence[Column], _id_text: bytes | None) -> Encoded:
        """Write an answer in row form."""
        return self.encode(outputs, row_form=True), _JSON_ONLY

    def _filled(self, rows: Rows) -> tuple[Column, ...]:
        """Return the columns of all inputs: those that were sent, and fresh seeds."""
        sent = iter(rows.columns)
        return tuple(fresh_seeds(rows.n) if tensor.is_optional else next(sent) for tensor in self.signature.inputs)

    def encode(self, outputs: Sequence[Column], *, row_form: bool) -> bytes:
        """Write an answer; see ``encode_predict``."""
        return encode_predict(outputs, self.signature, row_form=row_form)


_CODECS = BySignature(PredictCodec)


def codec_for(signature: ModelSignature) -> PredictCodec:
    """Return the codec of a signature, made at its first use."""
    return _CODECS.of(signature)


class TfsJson:
    """The wire format: each signature's codec."""

    #: All of a body is JSON.
    n_json: int | None = None
    #: By an eighth.
    prefers_one = True

    @staticmethod
    def n_parsed(body: Octets, _asked: Asked) -> int:
        """Return how many of a body's bytes have to be looked at: all."""
        return len(body)

    @staticmethod
    def decode(body: Octets, asked: Asked, *, max_instances: int) -> PredictRequest:
        """Read the body of a prediction. Errors: every ProtocolError."""
        return codec_for(asked.signature).decode(bytes(body), max_instances=max_instances)

    @staticmethod
    def decode_many(
        bodies: Sequence[bytes], _formats: Sequence[TfsJson], asked: Asked, *, max_instances: int
    ) -> ReadTogether:
        """Read the bodies of several predictions of one model."""
        return codec_for(asked.signature).decode_many(bodies, max_instances=max_instances)


TFS_JSON = TfsJson()


def decode_predict(body: bytes, signature: ModelSignature, *, max_instances: int) -> PredictRequest:
    """Read the body of a ``:predict`` request.

    Shapes: see ``Rows``; each example at its own length where an input has a length axis.
    Errors: every ProtocolError; nothing else, whatever the bytes.
    Source: protocols of TensorFlow Serving's RESTful API, row and column form.
    """
    return codec_for(signature).decode(body, max_instances=max_instances)
