"""Requests that schemathesis makes from the OpenAPI document, against a server with scripted models over a socket.

Half of them follow the document and half break it somewhere. No answer may be an error of ours, have a status that the
document does not name for that route, or look otherwise than it says. `make schemathesis` makes many; a test makes few.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi import checks

from tests.web.scripted import ScriptedCatalog, ScriptedModel
from tests.web.sockets import Connection, Running, over_sockets

__all__ = ["Outcome", "ask_everything"]

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
        await asyncio.to_thread(_ask, url, server.catalog, outcome, n_examples, seed, every)

    over_sockets(test, directory, import_packages=("models",), keep_alive_s=60)
    return outcome


def _ask(url: str, catalog: ScriptedCatalog, outcome: Outcome, n_examples: int, seed: int, every: int) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    with requests.Session() as session:
        for found in list(schema.get_all_operations())[seed % every :: every]:
            operation = found.ok()
            outcome.n_operations += 1
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                _restore(catalog)
                try:
                    strategy = operation.as_strategy(generation_mode=mode)
                    _ask_one(strategy, url, session, outcome, n_examples, seed)
                except hypothesis.errors.Unsatisfiable:
                    continue  # nothing about it can be broken
                except (Failure, FailureGroup, AssertionError) as error:
                    outcome.failures.append(f"{operation.label} ({mode}): {error}")


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
            known: dict[str, Any] = {"model": "sum", "version": "3", "label": "best"}
            for name in case.path_parameters or {}:
                case.path_parameters[name] = known[name]
        response = case.call(base_url=url, session=session, timeout=30)
        outcome.statuses[response.status_code] += 1
        assert response.status_code < 500 or response.status_code in _SAID, (case.as_curl_command(), response.text)
        assert response.headers["x-request-id"], case.as_curl_command()
        case.validate_response(response, checks=_CHECKS)

    ask()


def main() -> int:
    """Ask, and print how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=300, help="requests by the rules, and as many against them")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        outcome = ask_everything(Path(directory), n_examples=options.examples, seed=options.seed)
    print(f"{outcome.n_operations} operations, {outcome.n_requests} requests; answers by status:")
    print("  " + ", ".join(f"{status}: {n}" for status, n in sorted(outcome.statuses.items())))
    for failure in outcome.failures:
        print(failure)
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
