"""Does the same example get the same bytes? Under random load, in requests of random sizes, and after a restart.

``python -m loadtests.invariant`` starts a server in invariant mode, asks it for 100,000 examples, starts it again over
the same store, asks for as many again, and counts the examples that got more than one answer. Then it compares its
throughput with that of a server in free mode, interleaved. Exit code 1 if an answer differed.
"""

from __future__ import annotations

import http.client
import random
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import orjson
import typer

from loadtests.contenders import Server, rowwise_command
from loadtests.driver import drive
from loadtests.workload import Workload, load, make

__all__ = ["Answers", "ask_at_random", "n_differing"]

#: By example, the different answers that it got, as JSON.
Answers = dict[int, set[bytes]]

_MODEL = "digits"
#: Examples in one request: most callers send one, some more than the largest bucket holds.
_SIZES = (1, 1, 1, 2, 3, 5, 8, 13, 40, 100)
_ROUNDS = 5


def ask_at_random(
    url: str, path: str, examples: Sequence[bytes], *, n_examples: int, callers: int = 16, seed: int = 0
) -> Answers:
    """Ask for random examples in requests of random sizes, from several callers at a time.

    ``examples`` are JSON, as they stand in ``instances``. Errors: AssertionError for an answer that is no success.
    """
    address = urlsplit(url)

    def call(number: int) -> Answers:
        rng = random.Random(f"{seed}-{number}")
        answers: Answers = defaultdict(set)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=120)
        left = n_examples // callers
        while left > 0:
            numbers = [rng.randrange(len(examples)) for _ in range(min(left, rng.choice(_SIZES)))]
            left -= len(numbers)
            connection.request("POST", path, b'{"instances": [' + b",".join(examples[n] for n in numbers) + b"]}")
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, body
            for asked, row in zip(numbers, orjson.loads(body)["predictions"], strict=True):
                # Floats are printed in their shortest form, so that other bits are other text.
                answers[asked].add(orjson.dumps(row))
        connection.close()
        return answers

    together: Answers = defaultdict(set)
    with ThreadPoolExecutor(callers) as pool:
        for answers in pool.map(call, range(callers)):
            for asked, different in answers.items():
                together[asked] |= different
    return together


def n_differing(*several: Mapping[int, set[bytes]]) -> int:
    """Return how many examples got more than one answer, in one of the maps or between them."""
    together: Answers = defaultdict(set)
    for answers in several:
        for asked, different in answers.items():
            together[asked] |= different
    return sum(len(different) > 1 for different in together.values())


def _examples(workload: Workload) -> list[bytes]:
    return [orjson.dumps(orjson.loads(body)["instances"][0]) for body in workload.bodies]


def _server(store: Path, *, invariant: bool) -> Server:
    more = ["--invariant"] if invariant else []
    name = "invariant" if invariant else "free"
    return Server(name, lambda port: [*rowwise_command(port, store=store, models=[_MODEL]), *more], timeout_s=600.0)


def main(
    n_examples: Annotated[int, typer.Option(help="Examples to ask for before and after the restart.")] = 100_000,
    callers: Annotated[int, typer.Option(help="Callers whose throughput is compared.")] = 32,
) -> None:
    """Compare answers byte for byte, then the throughput of invariant and free mode."""
    with tempfile.TemporaryDirectory(prefix="rowwise-invariant-") as scratch:
        workload = load(make(_MODEL, Path(scratch)))
        examples = _examples(workload)
        store = Path(scratch) / "invariant"
        found = []
        for seed in (1, 2):
            with _server(store, invariant=True) as server:
                found.append(ask_at_random(server.url, workload.path, examples, n_examples=n_examples, seed=seed))
        differing = n_differing(*found)
        typer.echo(f"{2 * n_examples} answers about {len(examples)} examples: {differing} examples got different bytes")
        with _server(store, invariant=True) as ours, _server(Path(scratch) / "free", invariant=False) as free:
            ratios = []
            for _ in range(_ROUNDS):
                invariant_s, free_s = (
                    drive(each.url, workload, callers=callers).requests_per_s for each in (ours, free)
                )
                ratios.append(invariant_s / free_s)
                typer.echo(
                    f"{callers} callers: {invariant_s:.0f} requests/s in invariant mode, {free_s:.0f} in free mode"
                )
        typer.echo(f"throughput of invariant mode: {statistics.median(ratios):.2f} of free mode's (median)")
    raise typer.Exit(int(differing > 0))


if __name__ == "__main__":
    typer.run(main)
