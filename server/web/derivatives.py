"""Which derivative a request asks for: the verb says the kind, ``output`` and ``wrt`` in the body the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from server.protocol import MalformedRequest
from server.web.errors import DerivativeNotDeclared
from server.web.interfaces import EntryPoint, ServedDerivative, ServedModel

__all__ = ["VERBS", "DerivativeQuery", "choose_derivative", "read_query"]

VERBS = frozenset({"gradient", "jacobian", "hessian"})
_KEYS = ("output", "wrt")


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivativeQuery:
    """What a body says of the choice; None where it leaves it open."""

    output: str | None = None
    wrt: tuple[str, ...] | None = None


def read_query(body: bytes) -> tuple[DerivativeQuery, bytes]:
    """Return what a request chooses, and the body without that: a prediction's.

    Errors: MalformedRequest if ``output`` is no string or ``wrt`` no string or list of them. A body that is no JSON
        object passes: whoever reads the rest of it says so.
    """
    if not any(b'"%b"' % key.encode() in body for key in _KEYS):
        return DerivativeQuery(), body
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return DerivativeQuery(), body
    if not isinstance(document, dict) or not any(key in document for key in _KEYS):
        return DerivativeQuery(), body
    output, wrt = document.pop("output", None), document.pop("wrt", None)
    if output is not None and not isinstance(output, str):
        raise MalformedRequest(f"'output': expected the name of an output, got {_shown(output)}")
    if isinstance(wrt, str):
        wrt = [wrt]
    if wrt is not None and not (isinstance(wrt, list) and wrt and all(isinstance(name, str) for name in wrt)):
        raise MalformedRequest(f"'wrt': expected the name of an input or variable, or a list, got {_shown(wrt)}")
    return DerivativeQuery(output=output, wrt=None if wrt is None else tuple(wrt)), json.dumps(document).encode()


def choose_derivative(served: ServedModel, kind: str, query: DerivativeQuery) -> EntryPoint:
    """Return who answers. Errors: DerivativeNotDeclared, listing what there is, if that is none or several."""
    declared = [derivative for derivative in served.derivatives if derivative.kind == kind]
    fitting = [
        derivative
        for derivative in declared
        if query.output in (None, derivative.output) and set(query.wrt or ()) <= set(derivative.wrt)
    ]
    if query.wrt is not None:
        # One that was declared for exactly this is not in doubt because another computes it too.
        exact = [derivative for derivative in fitting if set(derivative.wrt) == set(query.wrt)]
        fitting = exact or fitting
    if len(fitting) == 1:
        return fitting[0].by(query.wrt or fitting[0].wrt)
    where = f"model {served.name!r} version {served.version}"
    if not served.derivatives:
        raise DerivativeNotDeclared(
            f"{where} declares no derivatives: register it with "
            f'"derivatives": [{{"kind": "{kind}"}}] in its specification'
        )
    there = _listed(declared or served.derivatives)
    if not declared:
        raise DerivativeNotDeclared(f"{where} declares no {kind}; it has {there}")
    asked = f"output {query.output!r}, wrt {list(query.wrt) if query.wrt else None}"
    if not fitting:
        raise DerivativeNotDeclared(f"{where} declares no {kind} of {asked}; it has {there}")
    raise DerivativeNotDeclared(f"{where}: say which {kind} by 'output' and 'wrt'; it has {there}")


def _listed(derivatives: Sequence[ServedDerivative]) -> str:
    return "; ".join(f"the {each.kind} of {each.output!r} wrt {list(each.wrt)}" for each in derivatives)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
