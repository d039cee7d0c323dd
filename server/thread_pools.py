"""Let each session run its kernels in the threads that it was given.

TensorFlow makes one pool of kernel threads for a process, of the size that its first device asks for: an operation run
eagerly, or another session. All later sessions share it, whatever number of threads they state. A session of one thread
that shares two spends processor time on handing small pieces over and on waiting: each call of a recommender at 8 rows
took 986 us of it, and 408 us in a thread of its own.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

__all__ = ["keep_pools_apart"]

#: Read once, when TensorFlow makes its first device.
_VARIABLE = "TF_OVERRIDE_GLOBAL_THREADPOOL"


def keep_pools_apart(environment: MutableMapping[str, str] | None = None) -> None:
    """Ask TensorFlow for a pool for each session. To be called before it makes a device."""
    environment = os.environ if environment is None else environment
    environment.setdefault(_VARIABLE, "true")
