"""Bytes to rows and outputs to bytes, for each wire format. No TensorFlow, no sockets."""

from __future__ import annotations

from server.protocol.errors import (
    EmptyRequest,
    MalformedRequest,
    ProtocolError,
    RaggedOutput,
    TooManyInstances,
    UnknownSignature,
    WrongDtype,
    WrongKeys,
    WrongShape,
)
from server.protocol.number_buffers import SHARED_PARSER_MAX_BYTES
from server.protocol.oip import OIP_JSON, OipFormat, oip_format
from server.protocol.rows import JSON, Array, Body, Column, Encoded, Headers, LongBody, Octets, PredictRequest, Rows
from server.protocol.tfs_json import TFS_JSON, PredictCodec, codec_for, decode_predict, encode_predict
from server.protocol.wire import AnswerForm, Asked, BodyFormat, ManyRequests, ReadTogether, WireFormat, WireRequest

__all__ = [
    "JSON",
    "OIP_JSON",
    "SHARED_PARSER_MAX_BYTES",
    "TFS_JSON",
    "AnswerForm",
    "Array",
    "Asked",
    "Body",
    "BodyFormat",
    "Column",
    "EmptyRequest",
    "Encoded",
    "Headers",
    "LongBody",
    "MalformedRequest",
    "ManyRequests",
    "Octets",
    "OipFormat",
    "PredictCodec",
    "PredictRequest",
    "ProtocolError",
    "RaggedOutput",
    "ReadTogether",
    "Rows",
    "TooManyInstances",
    "UnknownSignature",
    "WireFormat",
    "WireRequest",
    "WrongDtype",
    "WrongKeys",
    "WrongShape",
    "codec_for",
    "decode_predict",
    "encode_predict",
    "oip_format",
]
