"""Keep what TensorFlow says of itself when it starts off the user's screen, so that errors and results stand out.

Nothing is hidden from who asks for it: where ``TF_CPP_MIN_LOG_LEVEL`` is set, TensorFlow speaks as it likes.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import TextIO

__all__ = ["load_tensorflow", "notices_held", "open_stderr", "quieten"]

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
#: Errors and worse.
_ERRORS = "2"
#: Set beside the level, and seen by child processes: the level is ours, not the user's.
_OURS = "TF_ROWWISE_QUIET"
#: What is written to standard error before any level holds; and an error that is none: 303 says that this machine has
#: no CUDA driver.
_NOTICE = re.compile(
    rb"All log messages before absl::InitializeLog|cudart_stub\.cc|cpu_feature_guard\.cc"
    rb"|To enable the following instructions|failed call to cuInit.*\(303\)"
    # The cache of executables is read as text first, then as what it is.
    rb"|Error parsing text-format tensorflow\.XlaSerializedCacheEntry"
)
_STDERR = 2


def quieten(environment: MutableMapping[str, str] | None = None) -> None:
    """Ask TensorFlow, here and in child processes, for errors only. To be called before it is loaded."""
    environment = os.environ if environment is None else environment
    if _LEVEL not in environment:
        environment[_LEVEL] = _ERRORS
        environment[_OURS] = "1"


def load_tensorflow() -> None:
    """Import TensorFlow without its notices. Takes seconds the first time."""
    if "tensorflow" in sys.modules:
        return
    if _OURS in os.environ:
        # Its Python side goes by a logger: what is deprecated is for us to know, and what it loops is told by name.
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
    with notices_held():
        import tensorflow as tf

        tf.config.list_physical_devices()  # looks for a CUDA driver, and says so where there is none


def open_stderr() -> TextIO:
    """Return standard error as it is now, for a log that goes on while TensorFlow is loaded."""
    return os.fdopen(os.dup(_STDERR), "w", buffering=1, errors="backslashreplace")


@contextmanager
def notices_held() -> Iterator[None]:
    """Hold back what native code writes to standard error inside, and pass on all but the notices after it.

    TensorFlow writes before it reads its settings. Does nothing unless ``quieten`` did something.
    """
    if _OURS not in os.environ:
        yield
        return
    sys.stderr.flush()
    own = os.dup(_STDERR)
    held = os.memfd_create("held-stderr")
    try:
        os.dup2(held, _STDERR)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(own, _STDERR)
        os.lseek(held, 0, os.SEEK_SET)
        with os.fdopen(held, "rb") as file, os.fdopen(own, "wb") as out:
            out.writelines(line for line in file if not _NOTICE.search(line))
