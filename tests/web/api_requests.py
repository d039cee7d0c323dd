"""Requests that schemathesis makes from the OpenAPI document, against a server over a socket.

Half of them follow the document and half break it somewhere. No answer may be an error of ours, have a status that the
document does not name for that route, or look otherwise than it says. `make schemathesis` makes many of a server with
scripted models, or with ``--real`` of the server as an operator starts it; tests make few.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi import checks

from loadtests.small_models import BUILD
from tests.e2e.server_process import ServerProcess
from tests.web.scripted import ScriptedCatalog
from tests.web.scripted_model import ScriptedModel
from tests.web.sockets import Connection, Running, over_sockets

__all__ = ["KNOWN", "Outcome", "ask_everything", "ask_real_server", "small_server"]

# What an upload's pieces are: octets, which it makes of no type that it was not told.
schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")

#: What is said of the server's own state or of what it offers is no failure of it; 500 is.
_SAID = frozenset({501, 503, 504})
_CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


@dataclass
class Outcome:
    """What was sent, how it was answered, and what was wrong."""

    n_operations: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def n_requests(self) -> int:
        """Requests that were answered."""
        return sum(self.statuses.values())


def ask_everything(directory: Path, *, n_examples: int, seed: int, every: int = 1) -> Outcome:
    """Ask each operation, or one of ``every``, ``n_examples`` times by the rules and as often against them."""
    outcome = Outcome()

    async def test(server: Running, _: Connection) -> None:
        url = f"http://127.0.0.1:{server.port}"
        known = {"model": "sum", "version": "3", "label": "best"}
        restore = partial(_restore, server.catalog)
        await asyncio.to_thread(_ask, url, outcome, n_examples, seed, every, known=known, restore=restore)

    over_sockets(test, directory, import_packages=("models",), keep_alive_s=60)
    return outcome


def ask_real_server(url: str, *, known: dict[str, str], n_examples: int, seed: int) -> Outcome:
    """Ask each operation of a server that runs and has a model; what withdraws it comes last."""
    outcome = Outcome()
    _ask(url, outcome, n_examples, seed, 1, known=known, restore=lambda: None)
    return outcome


def _ask(
    url: str,
    outcome: Outcome,
    n_examples: int,
    seed: int,
    every: int,
    *,
    known: dict[str, str],
    restore: Callable[[], None],
) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = sorted((found.ok() for found in schema.get_all_operations()), key=_withdraws)
    with requests.Session() as session:
        for operation in operations[seed % every :: every]:
            outcome.n_operations += 1
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                restore()
                try:
                    strategy = operation.as_strategy(generation_mode=mode)
                    _ask_one(strategy, url, session, outcome, n_examples, seed, known)
                except hypothesis.errors.Unsatisfiable:
                    continue  # nothing about it can be broken
                except (Failure, FailureGroup, AssertionError) as error:
                    outcome.failures.append(f"{operation.label} ({mode}): {error}")


def _withdraws(operation: Any) -> bool:
    """Return whether an operation may take a model away that others are to be asked of."""
    return operation.method.upper() == "DELETE" or operation.path.endswith(("/unload", ":activate", ":rollback"))


def _restore(catalog: ScriptedCatalog) -> None:
    """Have two versions of a model again, one of them under a label."""
    catalog.records.clear()
    catalog.served.clear()
    catalog.serve(ScriptedModel("sum", 2), labels={"best": ""})
    catalog.serve(ScriptedModel("sum", 3))


def _ask_one(
    strategy: st.SearchStrategy[Case],
    url: str,
    session: requests.Session,
    outcome: Outcome,
    n_examples: int,
    seed: int,
    known: dict[str, str],
) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=n_examples,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
        print_blob=False,
    )
    @hypothesis.given(case=strategy, is_known=st.integers(0, 3))
    def ask(case: Case, is_known: int) -> None:
        if is_known:  # most names and versions that are made up are nobody's
            for name in known.keys() & (case.path_parameters or {}).keys():
                case.path_parameters[name] = known[name]
        response = case.call(base_url=url, session=session, timeout=120)
        outcome.statuses[response.status_code] += 1
        assert response.status_code < 500 or response.status_code in _SAID, (case.as_curl_command(), response.text)
        assert response.headers["x-request-id"], case.as_curl_command()
        case.validate_response(response, checks=_CHECKS)

    ask()


#: What a small server has.
KNOWN = {"model": "tripled", "version": "1", "label": "best"}


@contextmanager
def small_server(store: Path) -> Iterator[str]:
    """Run a server process with a small model under a label; yields its URL."""
    spec = {**BUILD["tripled"], "labels": {"best": ""}, "import_path": "loadtests.small_models:tripled"}
    with ServerProcess(store, "--import-package", "loadtests") as server:
        answer = requests.put(f"{server.url}/v1/models/tripled?wait=true", json=spec, timeout=300)
        assert answer.status_code == 200, answer.text
        yield server.url
        assert server.process.poll() is None, server.log


def main() -> int:
    """Ask, and print how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=300, help="requests by the rules, and as many against them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--real", action="store_true", help="ask a server process with a real model")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        if options.real:
            with small_server(Path(directory) / "store") as url:
                outcome = ask_real_server(url, known=KNOWN, n_examples=options.examples, seed=options.seed)
        else:
            outcome = ask_everything(Path(directory), n_examples=options.examples, seed=options.seed)
    print(f"{outcome.n_operations} operations, {outcome.n_requests} requests; answers by status:")
    print("  " + ", ".join(f"{status}: {n}" for status, n in sorted(outcome.statuses.items())))
    for failure in outcome.failures:
        print(failure)
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
