"""Codecs of JSON and of binary tensors beside it.

A codec with a shortcut is compared with its own exact reader: both must read the same or both refuse. What reads
several requests together is compared with reading each alone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from zlib import crc32

import pytest

from server.protocol import TFS_JSON, OipFormat, ProtocolError, codec_for
from server.protocol.oip_codec import OipCodec
from server.protocol.tfs_exact import ExactReader
from tests.fuzz_codecs.asking import ASKED, MAX_INSTANCES, Asking, arrays_of, check_rows, columns_as_json, plain, same
from tests.fuzz_codecs.target import Target
from tests.protocol.asked import Someone
from tests.protocol.oip_models import DATATYPES, binary_body, json_body

__all__ = ["Joint", "OipRest", "TfsJson"]


class TfsJson(Asking):
    """TensorFlow Serving's JSON, against the exact reader."""

    name = "tfs json"

    def bodies(self, asked: Someone) -> list[bytes]:
        found = []
        for arrays in arrays_of(asked):
            columns = columns_as_json(arrays)
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
        self._exact = {id(asked): ExactReader(asked.signature) for asked in ASKED}

    @staticmethod
    def taken_apart(body: bytes) -> tuple[int | None, bytes]:
        """Return how many bytes are said to be JSON, and the body that is sent."""
        return None, body

    def read_body(self, asked: Someone, body: bytes) -> str:
        exact = self._exact[id(asked)]
        try:
            request = codec_for(asked.signature).decode(body, max_instances=MAX_INSTANCES)
        except ProtocolError as error:
            # The shortcuts refuse nothing: it is the exact reader that did.
            return type(error).__name__
        check_rows(request.rows, asked)
        known = exact.decode(body, max_instances=MAX_INSTANCES)
        assert known.row_form is request.row_form
        assert known.rows.lengths == request.rows.lengths
        assert same(request.rows.columns, known.rows.columns)
        written, _ = request.encode(request.rows.columns)
        json.loads(written)
        return "read"


class OipRest(Asking):
    """The Open Inference Protocol over HTTP: the second byte tells how the length of the JSON is told."""

    def __init__(self, name: str, *, is_binary: bool) -> None:
        self.name = name
        self._is_binary = is_binary
        #: What is asked the second time, and made to know no forms before.
        self._fresh = {id(asked): OipCodec(asked) for asked in ASKED}

    def bodies(self, asked: Someone) -> list[bytes]:
        found = []
        outputs = [{"name": one.name} for one in asked.signature.outputs[:1]]
        for arrays in arrays_of(asked):
            if self._is_binary:
                for more in ({}, {"id": "7", "parameters": {"binary_data_output": True}}, {"outputs": outputs}):
                    body, n_json = binary_body(arrays, **more)
                    found.append(n_json.to_bytes(2, "big") + body)
                raw, n_json = binary_body({"x": arrays["x"]})
                found.append(b"\0\0" + raw[n_json:])
                continue
            nested = [
                {"name": name, "shape": array.shape, "datatype": DATATYPES[dtype], "data": plain(array)}
                for name, (dtype, array) in arrays.items()
            ]
            flat = [{**one, "data": plain(arrays[one["name"]][1].reshape(-1))} for one in nested]
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
            request = OipFormat(n_json).decode(body, asked, max_instances=MAX_INSTANCES)
        except ProtocolError as error:
            if crc32(body) % 4 == 0:
                with pytest.raises(type(error)):
                    fresh.decode(body, n_json=n_json, max_instances=MAX_INSTANCES)
            return type(error).__name__
        check_rows(request.rows, asked)
        fresh.forget()
        known = fresh.decode(body, n_json=n_json, max_instances=MAX_INSTANCES)
        assert same(request.rows.columns, known.rows.columns)
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
            for place, bodies in enumerate(map(self._one.bodies, ASKED))
            for n in (1, 2, 2, 3, 5)
        ]

    def read(self, data: bytes) -> str:
        asked = ASKED[(data[0] if data else 0) % len(ASKED)]
        told = [self._one.taken_apart(body) for body in data[1:].split(self._MARK)]
        bodies, lengths = [body for _, body in told], [n_json for n_json, _ in told]
        wire: Any = TFS_JSON if isinstance(self._one, TfsJson) else OipFormat(lengths[0])
        for n_json, body in told:  # only forms that were seen are read together
            with suppress(ProtocolError):
                OipFormat(n_json).decode(body, asked, max_instances=MAX_INSTANCES)
        together = wire.decode_many(bodies, list(map(OipFormat, lengths)), asked, max_instances=MAX_INSTANCES)
        placed = [member for group in together.groups for member in group.members]
        assert len(set(placed)) == len(placed)
        assert not set(placed) & set(together.alone)
        for group in together.groups:
            start = 0
            for member, count, id_text in zip(group.members, group.counts, group.id_texts, strict=True):
                own: Any = TFS_JSON if isinstance(self._one, TfsJson) else OipFormat(lengths[member])
                alone = own.decode(bodies[member], asked, max_instances=MAX_INSTANCES)
                assert alone.rows.n == count
                assert same(alone.rows.columns, [column[start : start + count] for column in group.rows.columns])
                assert alone.rows.lengths == (group.rows.lengths and group.rows.lengths[start : start + count])
                assert (alone.timeout_s, alone.priority) == (None, None)
                assert id_text == getattr(alone, "_id_text", None)
                start += count
            assert start == group.rows.n
        return "none together" if not placed else "some together" if len(placed) < len(bodies) else "all together"
