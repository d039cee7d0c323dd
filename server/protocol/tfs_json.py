"""TensorFlow Serving's REST form of a prediction: request bytes to rows, outputs to answer bytes.

A request is tried by up to three readers, fastest first (see each module's measurements)::

    BufferReader   one numeric input, row form       numbers never become Python objects
    TypedReader    numbers and booleans              structure checked while parsing
    ExactReader    everything                        the definition; the only one that raises

The first two accept a subset of what the third accepts, and give the same arrays; a property test holds them to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from server.protocol.by_signature import BySignature
from server.protocol.errors import UnknownSignature
from server.protocol.rows import Column, ManyRequests, PredictRequest, Rows
from server.protocol.seeds import fresh_seeds
from server.protocol.tfs_buffer import BufferReader
from server.protocol.tfs_encode import encode_predict
from server.protocol.tfs_exact import ExactReader
from server.protocol.tfs_typed import TypedReader
from server.protocol.wire import Asked
from server.signature import ModelSignature

__all__ = ["TFS_JSON", "PredictCodec", "codec_for", "decode_predict", "encode_predict"]

#: Names by which a request may ask for the only signature that a model has.
_SIGNATURE_NAMES = frozenset({None, "", "serving_default"})


class PredictCodec:
    """Decodes and encodes predictions of one signature. Make one for each signature and keep it."""

    __slots__ = ("_exact", "_many", "_readers", "signature")

    def __init__(self, signature: ModelSignature) -> None:
        self.signature = signature
        bare = signature.without_optional
        readers: list[tuple[BufferReader | TypedReader | None, ModelSignature]] = [
            (BufferReader.compile(bare), bare),
            (TypedReader.compile(bare), bare),
        ]
        if bare is not signature:
            readers.append((TypedReader.compile(signature), signature))
        #: With each whether it reads requests that leave the optional inputs out.
        self._readers = tuple((reader, read is not signature) for reader, read in readers if reader is not None)
        self._many = readers[0][0] if bare is signature and isinstance(readers[0][0], BufferReader) else None
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

    def decode_many(self, bodies: Sequence[bytes], *, max_instances: int) -> ManyRequests | None:
        """Read several requests at once, or return None: then each is to be read alone."""
        reader = self._many
        return None if reader is None else reader.decode_many(bodies, max_instances=max_instances)

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

    @staticmethod
    def n_parsed(body: bytes, _asked: Asked) -> int:
        """Return how many of a body's bytes have to be looked at: all."""
        return len(body)

    @staticmethod
    def decode(body: bytes, asked: Asked, *, max_instances: int) -> PredictRequest:
        """Read the body of a prediction. Errors: every ProtocolError."""
        return codec_for(asked.signature).decode(body, max_instances=max_instances)


TFS_JSON = TfsJson()


def decode_predict(body: bytes, signature: ModelSignature, *, max_instances: int) -> PredictRequest:
    """Read the body of a ``:predict`` request.

    Shapes: see ``Rows``; each example at its own length where an input has a length axis.
    Errors: every ProtocolError; nothing else, whatever the bytes.
    Source: protocols of TensorFlow Serving's RESTful API, row and column form.
    """
    return codec_for(signature).decode(body, max_instances=max_instances)
