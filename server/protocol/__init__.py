"""Bytes to rows and outputs to bytes, for each wire format. No TensorFlow, no sockets."""

from __future__ import annotations

from server.protocol.errors import (
    EmptyRequest,
    MalformedRequest,
    ProtocolError,
    TooManyInstances,
    UnknownSignature,
    WrongDtype,
    WrongKeys,
    WrongShape,
)
from server.protocol.rows import Array, Column, PredictRequest, Rows
from server.protocol.tfs_buffer import SHARED_PARSER_MAX_BYTES
from server.protocol.tfs_json import PredictCodec, codec_for, decode_predict, encode_predict

__all__ = [
    "SHARED_PARSER_MAX_BYTES",
    "Array",
    "Column",
    "EmptyRequest",
    "MalformedRequest",
    "PredictCodec",
    "PredictRequest",
    "ProtocolError",
    "Rows",
    "TooManyInstances",
    "UnknownSignature",
    "WrongDtype",
    "WrongKeys",
    "WrongShape",
    "codec_for",
    "decode_predict",
    "encode_predict",
]
