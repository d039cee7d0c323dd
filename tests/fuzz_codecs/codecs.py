"""The codecs as targets: bytes in, and either rows that are what the signature says, or a declared error.

A codec with a shortcut is compared with its own exact reader: both must read the same or both refuse. What reads
several requests together is compared with reading each alone, and readers of protocol buffers with the stock library's.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from google.protobuf.message import DecodeError

from server.protocol import TFS_JSON, Array, Column, OipFormat, ProtocolError, RaggedOutput, Rows, codec_for
from server.protocol.dtypes import numpy_dtype
from server.protocol.messages import message_class
from server.protocol.oip_codec import OipCodec
from server.protocol.oip_proto import InferCall
from server.protocol.tfs_exact import ExactReader
from server.protocol.tfs_proto import PredictMessage
from server.settings import Settings
from server.web.errors import BodyTooLarge, ImportNotAllowed, NotOffered, RegistrationRefused, SourceNotEnabled
from server.web.http2.header_blocks import BadHeaderBlock, HeaderReader
from server.web.registration import read_registration, read_spec
from server.web.rpc.framing import unpacked
from server.web.uploads import Form
from tests.fuzz_codecs.mutation import mutated
from tests.protocol.asked import EVERY_DTYPE, Someone, values_of
from tests.protocol.oip_models import DATATYPES, binary_body, json_body, model, tensor

__all__ = ["CODECS", "Target"]

_MAX_INSTANCES = 50


class Target:
    """Something that reads bytes."""

    name = ""

    def corpus(self) -> Sequence[bytes]:
        """Valid inputs."""
        raise NotImplementedError

    def draw(self, random_: random.Random, corpus: Sequence[bytes]) -> bytes:
        """Make an input."""
        return mutated(random_, corpus)

    def read(self, data: bytes) -> str:
        """Read an input; return what came of it: "read", or the name of a declared error. It raises nothing."""
        raise NotImplementedError


def _someone(inputs: Sequence[tuple[str, str, tuple[int | str, ...]]]) -> Someone:
    tensors = tuple(tensor(name, dtype, *shape) for name, dtype, shape in inputs)
    # Outputs are the inputs again, so that what was read can be written.
    return Someone(model(*tensors, outputs=tensors).signature)


#: Who is asked: the first byte of an input says whom.
_ASKED = (
    _someone([("x", "float32", (3,))]),
    _someone([("x", "float64", ())]),
    _someone([("x", "int64", (2, 4))]),
    _someone([("x", "int8", ("n",))]),
    _someone([("x", "string", ("n",)), ("y", "float32", ("n", 2))]),
    _someone([("x", "float16", (2,)), ("y", "bool", ()), ("z", "uint64", (1, 2))]),
    _someone([("x", "bfloat16", (2, 0)), ("y", "string", ())]),
    *[_someone([("x", dtype, (2,))]) for dtype in EVERY_DTYPE],
)


def _arrays(asked: Someone) -> list[dict[str, tuple[str, Array]]]:
    """Examples of whoever is asked, two and one."""
    made = []
    for n in (2, 1):
        arrays: dict[str, tuple[str, Array]] = {}
        for one in asked.signature.inputs:
            shape = (n, *(3 if isinstance(dim, str) else dim for dim in one.shape))
            values = values_of(one.dtype).reshape(-1)
            arrays[one.name] = (
                one.dtype,
                np.resize(values, shape) if 0 not in shape else np.empty(shape, values.dtype),
            )
        made.append(arrays)
    return made


def _plain(array: Array) -> Any:
    if array.dtype == object:
        return json.loads(json.dumps(array.tolist(), default=lambda value: value.decode("latin-1")))
    return array.astype(np.float64).tolist() if array.dtype.kind not in "biu" else array.tolist()


def _check_rows(rows: Rows, asked: Someone) -> None:
    """The rows are what the signature says."""
    assert 0 < rows.n <= _MAX_INSTANCES
    assert len(rows.columns) == len(asked.signature.inputs)
    for column, one in zip(rows.columns, asked.signature.inputs, strict=True):
        wanted = numpy_dtype(one.dtype)
        arrays = column if isinstance(column, list) else list(column) if one.shape else [column]
        assert len(column) == rows.n
        for array in arrays:
            assert np.asarray(array).dtype == wanted
            if isinstance(column, list):
                sizes = zip(one.shape, array.shape, strict=True)
                assert all(size == dim if isinstance(dim, int) else size <= 8 for dim, size in sizes)
        if not isinstance(column, list):
            assert column.shape == (rows.n, *one.shape)
    assert (rows.lengths is None) is (not asked.signature.axes)
    assert rows.n_bytes < 2**21


def _same(one: Sequence[Column], other: Sequence[Column]) -> bool:
    return all(_same_column(*pair) for pair in zip(one, other, strict=True))


def _same_column(one: Column, other: Column) -> bool:
    if isinstance(one, list) or isinstance(other, list):
        return len(one) == len(other) and all(map(_same_column, one, other))
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes()


class _Asking(Target):
    """Inputs whose first byte says who is asked."""

    def bodies(self, asked: Someone) -> list[bytes]:
        """Valid bodies."""
        raise NotImplementedError

    def corpus(self) -> Sequence[bytes]:
        return [bytes((place,)) + body for place, asked in enumerate(_ASKED) for body in self.bodies(asked)]

    def draw(self, random_: random.Random, corpus: Sequence[bytes]) -> bytes:
        data = mutated(random_, corpus)
        # What was written for one is seldom for another.
        return data or b"\0"

    def read(self, data: bytes) -> str:
        return self.read_body(_ASKED[data[0] % len(_ASKED)], data[1:])

    def read_body(self, asked: Someone, body: bytes) -> str:
        """Read a body."""
        raise NotImplementedError


def _columns_as_json(arrays: dict[str, tuple[str, Array]]) -> dict[str, Any]:
    return {name: _plain(array) for name, (_, array) in arrays.items()}


class TfsJson(_Asking):
    """TensorFlow Serving's JSON, against the exact reader."""

    name = "tfs json"

    def bodies(self, asked: Someone) -> list[bytes]:
        found = []
        for arrays in _arrays(asked):
            columns = _columns_as_json(arrays)
            n = len(next(iter(columns.values())))
            rows: list[Any] = [{name: column[row] for name, column in columns.items()} for row in range(n)]
            bare = len(columns) == 1
            found += [
                json.dumps({"instances": [row["x"] for row in rows] if bare else rows}).encode(),
                json.dumps({"instances": rows}, separators=(",", ":")).encode(),
                json.dumps({"signature_name": "serving_default", "inputs": columns}).encode(),
            ]
        return found

    def __init__(self) -> None:
        self._exact = {id(asked): ExactReader(asked.signature) for asked in _ASKED}

    @staticmethod
    def taken_apart(body: bytes) -> tuple[int | None, bytes]:
        """Return how many bytes are said to be JSON, and the body that is sent."""
        return None, body

    def read_body(self, asked: Someone, body: bytes) -> str:
        exact = self._exact[id(asked)]
        try:
            request = codec_for(asked.signature).decode(body, max_instances=_MAX_INSTANCES)
        except ProtocolError as error:
            # The shortcuts refuse nothing: it is the exact reader that did.
            return type(error).__name__
        _check_rows(request.rows, asked)
        known = exact.decode(body, max_instances=_MAX_INSTANCES)
        assert known.row_form is request.row_form
        assert known.rows.lengths == request.rows.lengths
        assert _same(request.rows.columns, known.rows.columns)
        written, _ = request.encode(request.rows.columns)
        json.loads(written)
        return "read"


class OipRest(_Asking):
    """The Open Inference Protocol over HTTP: the second byte tells how the length of the JSON is told."""

    def __init__(self, name: str, *, is_binary: bool) -> None:
        self.name = name
        self._is_binary = is_binary
        #: What is asked the second time, and made to know no forms before.
        self._fresh = {id(asked): OipCodec(asked) for asked in _ASKED}

    def bodies(self, asked: Someone) -> list[bytes]:
        found = []
        outputs = [{"name": one.name} for one in asked.signature.outputs[:1]]
        for arrays in _arrays(asked):
            if self._is_binary:
                for more in ({}, {"id": "7", "parameters": {"binary_data_output": True}}, {"outputs": outputs}):
                    body, n_json = binary_body(arrays, **more)
                    found.append(n_json.to_bytes(2, "big") + body)
                raw, n_json = binary_body({"x": arrays["x"]})
                found.append(b"\0\0" + raw[n_json:])
                continue
            nested = [
                {"name": name, "shape": array.shape, "datatype": DATATYPES[dtype], "data": _plain(array)}
                for name, (dtype, array) in arrays.items()
            ]
            flat = [{**one, "data": _plain(arrays[one["name"]][1].reshape(-1))} for one in nested]
            for tensors in (nested, flat):
                more = {"id": "a", "outputs": outputs, "parameters": {"priority": 1, "timeout": 5}}
                found += [json_body(*tensors), json_body(*tensors, **more)]
                found.append(json.dumps({"id": "x", "inputs": tensors}, separators=(",", ":")).encode())
        return found

    def taken_apart(self, body: bytes) -> tuple[int | None, bytes]:
        """Return how many bytes are said to be JSON, and the body that is sent."""
        return (int.from_bytes(body[:2], "big"), body[2:]) if self._is_binary else (None, body)

    def read_body(self, asked: Someone, body: bytes) -> str:
        n_json, body = self.taken_apart(body)
        fresh = self._fresh[id(asked)]
        try:
            request = OipFormat(n_json).decode(body, asked, max_instances=_MAX_INSTANCES)
        except ProtocolError as error:
            if crc32(body) % 4 == 0:
                with pytest.raises(type(error)):
                    fresh.decode(body, n_json=n_json, max_instances=_MAX_INSTANCES)
            return type(error).__name__
        _check_rows(request.rows, asked)
        fresh.forget()
        known = fresh.decode(body, n_json=n_json, max_instances=_MAX_INSTANCES)
        assert _same(request.rows.columns, known.rows.columns)
        assert (request.timeout_s, request.priority) == (known.timeout_s, known.priority)
        written, headers = request.encode(request.rows.columns)
        other, _ = known.encode(known.rows.columns)
        assert bytes(written) == bytes(other)
        told = dict(headers).get(b"inference-header-content-length")
        json.loads(written if told is None else written[: int(told)])
        return "read"


class Joint(Target):
    """Several bodies to one model read together, against each alone."""

    _MARK = b"\x1e\x1d\x1e\x1d"

    def __init__(self, name: str, one: TfsJson | OipRest) -> None:
        self.name = name
        self._one = one

    def corpus(self) -> Sequence[bytes]:
        random_ = random.Random(0)
        return [
            bytes((place,)) + self._MARK.join(random_.choice(bodies) for _ in range(n))
            for place, bodies in enumerate(map(self._one.bodies, _ASKED))
            for n in (1, 2, 2, 3, 5)
        ]

    def read(self, data: bytes) -> str:
        asked = _ASKED[(data[0] if data else 0) % len(_ASKED)]
        told = [self._one.taken_apart(body) for body in data[1:].split(self._MARK)]
        bodies, lengths = [body for _, body in told], [n_json for n_json, _ in told]
        wire: Any = TFS_JSON if isinstance(self._one, TfsJson) else OipFormat(lengths[0])
        for n_json, body in told:  # only forms that were seen are read together
            with suppress(ProtocolError):
                OipFormat(n_json).decode(body, asked, max_instances=_MAX_INSTANCES)
        together = wire.decode_many(bodies, lengths, asked, max_instances=_MAX_INSTANCES)
        placed = [member for group in together.groups for member in group.members]
        assert len(set(placed)) == len(placed)
        assert not set(placed) & set(together.alone)
        for group in together.groups:
            start = 0
            for member, count, id_text in zip(group.members, group.counts, group.id_texts, strict=True):
                own: Any = TFS_JSON if isinstance(self._one, TfsJson) else OipFormat(lengths[member])
                alone = own.decode(bodies[member], asked, max_instances=_MAX_INSTANCES)
                assert alone.rows.n == count
                assert _same(alone.rows.columns, [column[start : start + count] for column in group.rows.columns])
                assert alone.rows.lengths == (group.rows.lengths and group.rows.lengths[start : start + count])
                assert (alone.timeout_s, alone.priority) == (None, None)
                assert id_text == getattr(alone, "_id_text", None)
                start += count
            assert start == group.rows.n
        return "none together" if not placed else "some together" if len(placed) < len(bodies) else "all together"


class _Proto(_Asking):
    """A message, against the stock library's reading of it."""

    def __init__(self, name: str, kind: Any, full_name: str) -> None:
        self.name = name
        self._kind = kind
        self._stock = message_class(full_name)

    def read_body(self, asked: Someone, body: bytes) -> str:
        try:
            request = self._kind(body).decode(body, asked, max_instances=_MAX_INSTANCES)
        except Exception as error:
            if isinstance(error, ProtocolError):
                return type(error).__name__
            raise
        _check_rows(request.rows, asked)
        try:
            self._stock.FromString(body)
        except DecodeError:
            # Some things are not looked at: fields without values of the tensor's dtype, a text of which another is.
            return "read, and not by the stock library"
        try:
            request.encode(request.rows.columns)
        except RaggedOutput:
            return "RaggedOutput"
        return "read"


_CONTENTS = dict.fromkeys(("int8", "int16", "int32"), "int_contents") | {
    **dict.fromkeys(("uint8", "uint16", "uint32"), "uint_contents"),
    "bool": "bool_contents",
    "int64": "int64_contents",
    "uint64": "uint64_contents",
    "string": "bytes_contents",
    "float32": "fp32_contents",
    "float64": "fp64_contents",
}


class OipProto(_Proto):
    """ModelInferRequest."""

    def __init__(self) -> None:
        super().__init__("oip proto", InferCall, "inference.ModelInferRequest")

    def bodies(self, asked: Someone) -> list[bytes]:
        found = []
        for arrays in _arrays(asked):
            for is_raw in (True, False):
                request = self._stock(model_name="m", model_version="3", id="7")
                request.outputs.add(name="x")
                request.parameters["timeout"].int64_param = 5_000
                for name, (dtype, array) in arrays.items():
                    one = request.inputs.add(name=name, datatype=DATATYPES[dtype], shape=array.shape)
                    if is_raw:
                        raw, n_json = binary_body({name: (dtype, array)})
                        request.raw_input_contents.append(raw[n_json:])
                    elif dtype in _CONTENTS:
                        getattr(one.contents, _CONTENTS[dtype]).extend(array.reshape(-1).tolist())
                found.append(request.SerializeToString())
        return found


class TfsProto(_Proto):
    """PredictRequest."""

    def __init__(self) -> None:
        super().__init__("tfs proto", PredictMessage, "tensorflow.serving.PredictRequest")

    def bodies(self, asked: Someone) -> list[bytes]:
        from tests.web.conformance.asking import tensor_message

        found = []
        for arrays in _arrays(asked):
            for is_content in (True, False):
                request = self._stock(output_filter=["x"])
                request.model_spec.name = "m"
                request.model_spec.version.value = 3
                for name, (dtype, array) in arrays.items():
                    tensor_message(request.inputs[name], dtype, array, is_content=is_content)
                found.append(request.SerializeToString())
        return found


class HeaderBlocks(Target):
    """HPACK: blocks of one connection, against a reader that remembers none."""

    name = "hpack"
    _MARK = b"\xfe\xfd"

    def corpus(self) -> Sequence[bytes]:
        from hpack import Encoder

        found = []
        for n in (1, 2, 4):
            encoder = Encoder()
            blocks = [
                encoder.encode(
                    [
                        (":method", "POST"),
                        (":path", f"/inference.GRPCInferenceService/{'ModelInfer' if at % 2 else 'ServerLive'}"),
                        ("content-type", "application/grpc"),
                        ("grpc-timeout", f"{at}S"),
                        ("x-request-id", "a" * at),
                    ],
                    huffman=bool(at % 2),
                )
                for at in range(n)
            ]
            found += [self._MARK.join(blocks), self._MARK.join(blocks + blocks[-1:])]
        found.append(b"\x3f\xe1\x1f" + found[0])
        return found

    def read(self, data: bytes) -> str:
        reader = HeaderReader(max_bytes=32_768)
        from hpack import Decoder, HPACKError

        plain = Decoder(max_header_list_size=32_768)
        for block in data.split(self._MARK):
            try:
                headers = reader.read(block)
            except BadHeaderBlock:
                try:
                    plain.decode(block, raw=True)
                except (HPACKError, IndexError, ValueError):
                    return "BadHeaderBlock"
                raise AssertionError("a plain decoder reads it") from None
            assert headers == {bytes(name): bytes(value) for name, value in plain.decode(block, raw=True)}
        return "read"


class Packed(Target):
    """Compressed messages of gRPC."""

    name = "grpc message, compressed"

    def corpus(self) -> Sequence[bytes]:
        import zlib

        texts = (b"", b"a" * 5_000, bytes(range(256)), b"0" * 200_000)
        return [pack(text) for text in texts for pack in (gzip.compress, zlib.compress)]

    def read(self, data: bytes) -> str:
        from server.protocol import MalformedRequest

        try:
            assert len(unpacked(data, b"gzip", limit_bytes=100_000)) <= 100_000
        except (MalformedRequest, BodyTooLarge, NotOffered) as error:
            return type(error).__name__
        return "read"


_SPEC = {
    "inputs": {"x": {"dtype": "float32", "shape": [None, 2], "max": 8, "length_input": "n", "lengths": [4, 8]}},
    "signature": "serving_default",
    "buckets": [1, 2, 4],
    "max_batch": 32,
    "default_timeout_ms": 500,
    "derivatives": ["gradient", {"kind": "jacobian", "output": "y", "wrt": ["x"]}],
    "allow_looped": ["MatMul"],
    "labels": {"stable": "yes"},
    "examples": [{"x": [[1, 2]]}],
}


class Registrations(Target):
    """Registrations in JSON, and specifications alone."""

    name = "registration"

    def __init__(self) -> None:
        self._settings = Settings(import_packages=("models",))

    def corpus(self) -> Sequence[bytes]:
        whole = {"import_path": "models.digits:predict"}
        return [
            json.dumps(each).encode()
            for each in (_SPEC, {}, {**whole, **_SPEC}, {**whole, "spec": _SPEC}, whole, {"source": "x"})
        ]

    def read(self, data: bytes) -> str:
        with suppress(RegistrationRefused):
            read_spec(data)
        try:
            read_registration(data, self._settings)
        except (RegistrationRefused, ImportNotAllowed, SourceNotEnabled) as error:
            return type(error).__name__
        return "read"


class Uploads(Target):
    """Multipart forms: whole, and in pieces, which must come to the same."""

    name = "upload"

    def corpus(self) -> Sequence[bytes]:
        head = b'--b\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
        archive = head % (
            b"archive",
            b'; filename="m.tar.gz"\r\nContent-Type: application/gzip',
            b"\x1f\x8b--b\r\n-" * 9,
        )
        spec = head % (b"spec", b"", json.dumps(_SPEC).encode())
        plain = head % (b"archive", b"", b"octets")
        ends = b"--b--\r\n"
        return [
            archive + spec + ends,
            spec + archive + ends,
            plain + ends,
            spec + ends,
            b"--b--",
            archive + archive + ends,
        ]

    def read(self, data: bytes) -> str:
        outcomes = {self._outcome([data]), self._outcome([data[at : at + 40] for at in range(0, len(data), 40)])}
        assert len(outcomes) == 1, outcomes
        return outcomes.pop()[0]

    @staticmethod
    def _outcome(pieces: Sequence[bytes]) -> tuple[str, str | None, bytes | None, bytes]:
        form = Form(b"multipart/form-data; boundary=b", max_archive_bytes=10_000)
        try:
            for piece in pieces:
                form.feed(piece)
            form.close()
        except (RegistrationRefused, BodyTooLarge) as error:
            return type(error).__name__, None, None, b""
        if form.filename is None:  # refused by who takes the form; the parser may lose track of what is before parts
            return "RegistrationRefused", None, None, b""
        return "read", form.filename, form.spec, bytes(form.pending)


_TFS_JSON = TfsJson()
_OIP_JSON = OipRest("oip json", is_binary=False)
_OIP_BINARY = OipRest("oip binary", is_binary=True)

CODECS: tuple[Target, ...] = (
    _TFS_JSON,
    Joint("tfs json, joint", _TFS_JSON),
    _OIP_JSON,
    Joint("oip json, joint", _OIP_JSON),
    _OIP_BINARY,
    Joint("oip binary, joint", _OIP_BINARY),
    OipProto(),
    TfsProto(),
    HeaderBlocks(),
    Packed(),
    Registrations(),
    Uploads(),
)
