"""The builder process: one registration in, one artifact out, then it ends.

It ends so that everything that tracing allocated is given back: TensorFlow never frees a traced graph
(tensorflow#124972). Nothing that it loads or imports ever runs in a serving process.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from server.build.archive import extract_saved_model
from server.build.request import BuildRequest, WorkerChannel
from server.build.source import ArchiveSource
from server.spec import ModelSpec
from server.xla_cache import keep_executables

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Build what standard input asks for, and say on the channel how it went. Returns the exit code."""
    channel = WorkerChannel.open(arguments, sys.stdin.buffer)
    try:
        channel.progress("trace", 0, 1)
        _build(channel.request, channel)
    except Exception as error:  # noqa: BLE001 - whatever ended the build is its reason
        channel.failed(error)
        return 1
    channel.done()
    return 0


def _build(request: BuildRequest, channel: WorkerChannel) -> None:
    # TensorFlow takes seconds to import: a refused archive does not wait for it.
    spec = ModelSpec.model_validate(request.spec)
    saved_model = (
        extract_saved_model(request.source.path, request.source_dir)
        if isinstance(request.source, ArchiveSource)
        else None
    )
    # Each bucket is compiled to be timed and again to be checked: the second time it is read.
    keep_executables(Path(tempfile.mkdtemp(prefix="xla-", dir=request.source_dir)))
    from server.build.compile import build_artifact

    build_artifact(
        _declaration(request, spec, saved_model),
        request.output_dir,
        name=request.name,
        version=request.version,
        report=channel.progress,
    )


def _declaration(request: BuildRequest, spec: ModelSpec, saved_model: Path | None) -> Any:
    from server.build.declaration import declaration_of_function, declaration_of_saved_model, import_function

    if saved_model is not None:
        return declaration_of_saved_model(saved_model, spec)
    assert not isinstance(request.source, ArchiveSource)
    function, module = import_function(request.source.target, request.import_packages)
    return declaration_of_function(function, module, spec)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
