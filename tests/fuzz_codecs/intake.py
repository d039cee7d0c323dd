"""What is no prediction: header blocks, messages in frames, registrations, uploads."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from contextlib import suppress

from server.settings import Settings
from server.web.errors import BodyTooLarge, ImportNotAllowed, NotOffered, RegistrationRefused, SourceNotEnabled
from server.web.http2.header_blocks import BadHeaderBlock, HeaderReader
from server.web.registration import read_registration, read_spec
from server.web.rpc.framing import unpacked
from server.web.uploads import Form
from tests.fuzz_codecs.target import Target

__all__ = ["HeaderBlocks", "Packed", "Registrations", "Uploads"]


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
