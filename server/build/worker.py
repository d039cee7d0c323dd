"""The builder process: one registration in, one artifact out, then it ends.

It ends so that everything that tracing allocated is given back: TensorFlow never frees a traced graph
(tensorflow#124972). Nothing that it loads or imports ever runs in a serving process.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from server.build.archive import extract_saved_model
from server.build.importing import import_function
from server.build.request import BuildRequest, WorkerChannel
from server.build.source import ArchiveSource, TextSource
from server.spec import ModelSpec
from server.thread_pools import keep_pools_apart
from server.xla_cache import keep_executables

if TYPE_CHECKING:
    from server.build.declaration import Declaration

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
    spec = ModelSpec.model_validate(request.spec)
    keep_pools_apart()
    # Each bucket is compiled to be timed and again to be checked: the second time it is read.
    keep_executables(Path(tempfile.mkdtemp(prefix="xla-", dir=request.source_dir)), is_set_by_parent=True)
    declare = _declarer(request, spec)
    from server.build.compile import build_artifact

    build_artifact(declare(), request.output_dir, name=request.name, version=request.version, report=channel.progress)


def _declarer(request: BuildRequest, spec: ModelSpec) -> Callable[[], Declaration]:
    """Take in the source, and return what declares it.

    TensorFlow takes seconds to import: an archive or a path that is refused does not wait for it.
    """
    source = request.source
    if isinstance(source, ArchiveSource):
        saved_model = extract_saved_model(source.path, request.source_dir)

        def declare() -> Declaration:
            from server.build.declaration import declaration_of_saved_model
            from server.graph_checks.check import check_saved_model

            check_saved_model(saved_model)
            return declaration_of_saved_model(saved_model, spec)

    elif isinstance(source, TextSource):
        from server.build.source_text import function_of_text, read_weights, written

        text = written(source.text, request.source_dir)
        weights = {} if source.path is None else read_weights(source.path)
        function, module = function_of_text(text, source.function, weights)

        def declare() -> Declaration:
            from server.build.declaration import declaration_of_function

            return declaration_of_function(function, module, spec)

    else:
        function, module = import_function(source.target, request.import_packages)

        def declare() -> Declaration:
            from server.build.declaration import declaration_of_function

            return declaration_of_function(function, module, spec)

    return declare


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
