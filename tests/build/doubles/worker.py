"""A worker without TensorFlow: its first argument says how it behaves, the rest is what the supervisor passes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from server.build.request import WorkerChannel

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def _read(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""


def main(behaviour: str, arguments: list[str]) -> int:  # noqa: C901 - one case a behaviour
    channel = WorkerChannel.open(arguments, sys.stdin.buffer)
    output = channel.request.output_dir
    (output / "pid").write_text(str(os.getpid()))
    match behaviour:
        case "good":
            for step in range(3):
                channel.progress("check", step + 1, 3)
            (output / "request.json").write_text(json.dumps(channel.request.to_json()))
            (output / "environment.json").write_text(json.dumps(dict(os.environ)))
            (output / "state.json").write_text(
                json.dumps(
                    {
                        "nice": os.nice(0),
                        "group": os.getpgid(0),
                        "session": os.getsid(0),
                        "status": Path("/proc/self/status").read_text(),
                        "autogroup": _read("/proc/self/autogroup"),
                        "oom_score_adj": int(Path("/proc/self/oom_score_adj").read_text()),
                    }
                )
            )
            channel.done()
        case "refuse":
            channel.failed(ValueError("op Foo has no converter"))
            return 1
        case "refuse-at-length":
            channel.failed(ValueError("x" * 5_000_000))
            return 1
        case "signal":
            print("about to fall")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGSEGV)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            for line in range(100):
                print(f"line {line}", file=sys.stderr)
            return 3
        case "loud-exit":
            # Full to the brim when it leaves, so that the end is still in the pipe.
            os.write(2, b"x\n" * 30_000 + b"last words\n")
            os._exit(3)
        case "exit-silently":
            return 0
        case "hang":
            channel.progress("trace", 0, 1)
            time.sleep(600)
        case "ignore-sigterm":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            channel.progress("trace", 0, 1)
            time.sleep(600)
        case "grow":
            held = []
            while True:
                held.append(b"x" * 2**23)
                time.sleep(0.01)
        case "grow-in-an-orphan":
            # The middle process ends at once: the one that grows is nobody's child any more.
            grow = "h = []\nimport time\nwhile True: h.append(b'x' * 2**23); time.sleep(0.01)"
            start = (
                f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {grow!r}], start_new_session=True)"
            )
            subprocess.run([sys.executable, "-c", start], check=True)
            time.sleep(600)
        case "garbage":
            channel._events.write(b"Epoch 1/10: loss 0.3\n")
            time.sleep(600)
        case "endless-line":
            while True:
                channel._events.write(b"x" * 65536)
        case "half-a-line":
            channel._events.write(b'{"event": "do')
        case "close-and-stay":
            channel._events.close()
            time.sleep(600)
        case "flood":
            while True:
                channel.progress("check", 1, 2)
        case "loud":
            # More than any pipe holds, on both, before the end.
            for _ in range(2000):
                sys.stderr.write("e" * 5000 + "\n")
                sys.stdout.write("o" * 5000 + "\n")
            channel.done()
        case "deaf":
            channel.done()
        case "stay-when-done":
            channel.done()
            time.sleep(600)
        case "crash-when-done":
            channel.done()
            os.kill(os.getpid(), signal.SIGSEGV)
        case "children" | "children-then-exit" | "children-then-done":
            children = [
                subprocess.Popen(SLEEPER),
                subprocess.Popen(SLEEPER, start_new_session=True),
            ]
            pids = [child.pid for child in children]
            forked = os.fork()
            if forked == 0:
                # Holds the events' and the output's pipe open.
                os.setsid()
                time.sleep(600)
            (output / "children.json").write_text(json.dumps([*pids, forked]))
            if behaviour == "children-then-exit":
                os._exit(7)
            if behaviour == "children-then-done":
                channel.done()
                os._exit(0)
            channel.progress("trace", 0, 1)
            time.sleep(600)
        case "wait-for-file":
            channel.progress("trace", 0, 1)
            while not (output / "go").exists():
                time.sleep(0.005)
            channel.done()
        case _:
            raise ValueError(behaviour)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
