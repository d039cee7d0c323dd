"""Compiles server/protocol/protos/*.proto into the descriptors that the server loads: ``make protos``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

__all__ = ["compile_protos"]

PROTOS = Path(__file__).resolve().parent.parent / "server" / "protocol" / "protos"
COMPILED = PROTOS / "compiled.binpb"


def compile_protos() -> bytes:
    """Return a FileDescriptorSet of all files and what they import."""
    with tempfile.TemporaryDirectory() as directory:
        compiled = Path(directory, "set.binpb")
        # In a process of its own: beside TensorFlow, which has a protobuf library too, the compiler crashes.
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTOS}", "--include_imports"]
        command += [f"--proto_path={files('grpc_tools') / '_proto'}", f"--descriptor_set_out={compiled}"]
        command += sorted(path.name for path in PROTOS.glob("*.proto"))
        subprocess.run(command, check=True)
        return compiled.read_bytes()


if __name__ == "__main__":
    COMPILED.write_bytes(compile_protos())
    print(f"{COMPILED.relative_to(Path.cwd())}: {COMPILED.stat().st_size} bytes")
