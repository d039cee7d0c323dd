"""Compiles server/protocol/protos/*.proto into the descriptors that the server loads: ``make protos``."""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

__all__ = ["compile_protos"]

PROTOS = Path(__file__).resolve().parent.parent / "server" / "protocol" / "protos"
COMPILED = PROTOS / "compiled.binpb"


def compile_protos() -> bytes:
    """Return a FileDescriptorSet of all files and what they import."""
    with tempfile.TemporaryDirectory() as directory:
        compiled = Path(directory, "set.binpb")
        code = protoc.main(
            [
                "protoc",
                f"--proto_path={PROTOS}",
                f"--proto_path={files('grpc_tools') / '_proto'}",
                "--include_imports",
                f"--descriptor_set_out={compiled}",
                *sorted(path.name for path in PROTOS.glob("*.proto")),
            ]
        )
        if code:
            sys.exit(f"protoc ended with exit code {code}")
        return compiled.read_bytes()


if __name__ == "__main__":
    COMPILED.write_bytes(compile_protos())
    print(f"{COMPILED.relative_to(Path.cwd())}: {COMPILED.stat().st_size} bytes")
