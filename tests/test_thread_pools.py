from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from server.thread_pools import keep_pools_apart

#: Takes a directory. Prints how much of the process's time the calling thread took while a session of one thread ran.
_CALLS = """
import sys
import time
from pathlib import Path

from server.thread_pools import keep_pools_apart

keep_pools_apart()
import numpy as np
import tensorflow as tf

from server.engine._session import GraphSession

root = tf.Module()
root.w = tf.Variable(tf.ones([512, 512]))  # makes the first device, with a thread for each core
product = tf.function(lambda x: {"y": x @ root.w}).get_concrete_function(tf.TensorSpec([64, 512], name="x"))
tf.saved_model.save(root, sys.argv[1], signatures={"call": product})
session = GraphSession(Path(sys.argv[1]), executor="single_threaded", intra_op_threads=1)
call, x = session.callable("call", inputs=["x"], outputs=["y"]), np.ones([64, 512], np.float32)
call(x)
own_s, all_s = time.thread_time(), time.process_time()
for _ in range(100):
    call(x)
print((time.thread_time() - own_s) / (time.process_time() - all_s))
"""


def test_what_the_user_has_set_stays() -> None:
    environment = {"TF_OVERRIDE_GLOBAL_THREADPOOL": "false"}
    keep_pools_apart(environment)
    assert environment == {"TF_OVERRIDE_GLOBAL_THREADPOOL": "false"}


@pytest.mark.slow
def test_session_of_one_thread_keeps_no_other_busy(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-c", _CALLS, str(tmp_path)], check=True, capture_output=True, text=True, timeout=300
    )
    assert float(made.stdout.split()[-1]) > 0.9
