"""``python -m benchmarks``: the batching core and the vectorizer; with ``--device gpu`` forward models alone."""

from __future__ import annotations

import argparse
import subprocess
import sys


def main() -> int:
    """Run each benchmark in a process of its own, so that none warms up another."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="where graphs run (default: cpu)")
    options = parser.parse_args()
    commands = [["benchmarks.forward", "--device", options.device]]
    if options.device == "cpu":
        commands = [["benchmarks.core_overhead"], ["benchmarks.planner"], *commands, ["benchmarks.paper_list"]]
    failed = 0
    for command in commands:
        print(f"\n== {command[0]}", flush=True)
        failed |= subprocess.run([sys.executable, "-m", *command], check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
