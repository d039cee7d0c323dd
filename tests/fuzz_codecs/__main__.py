"""``make fuzz-codecs``: every codec under a million inputs that are nearly right."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.fuzz_codecs.targets import TARGETS, run_one


def main() -> int:
    """Run the targets that are asked for, and print what came of their inputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="for each codec")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="a codec's name, or a part of several codecs' names")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    names = [target.name for target in TARGETS]
    if options.only is not None:
        names = [options.only] if options.only in names else [name for name in names if options.only in name]
    n_broken = 0
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for each in [pool.submit(run_one, name, options.inputs, options.seed) for name in names]:
            tally = each.result()
            if isinstance(tally, str):
                n_broken += 1
                print(f"BROKEN {tally}", flush=True)
                continue
            outcomes = ", ".join(f"{outcome} {n:,}" for outcome, n in tally.outcomes.most_common())
            print(f"{tally.name}: {tally.n_inputs:,} inputs in {tally.took_s:.0f} s")
            print(f"    slowest {tally.slowest_s * 1e3:.1f} ms; {outcomes}", flush=True)
    return 1 if n_broken else 0


if __name__ == "__main__":
    sys.exit(main())
