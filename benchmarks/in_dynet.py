"""Three forward models in DyNet, written for one example, as its users write them.

A batch is one graph of all examples; with automatic batching DyNet looks for equal operations in it when it runs.
Source: G. Neubig, Y. Goldberg, C. Dyer, "On-the-fly Operation Batching in Dynamic Computation Graphs", 2017.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dynet as dy
import numpy as np

__all__ = ["contender"]

Arrays = Mapping[str, np.ndarray]
#: Takes the parameters and one example's inputs, gives an expression.
Model = Callable[[Mapping[str, Any], Arrays], Any]


def _mlp(w: Mapping[str, Any], x: Arrays) -> Any:
    hidden = dy.rectify(dy.affine_transform([w["b1"], w["w1"], dy.inputTensor(x["image"])]))
    hidden = dy.rectify(dy.affine_transform([w["b2"], w["w2"], hidden]))
    return dy.softmax(dy.affine_transform([w["b3"], w["w3"], hidden]))


def _lstm(w: Mapping[str, Any], x: Arrays) -> Any:
    hidden = cell = None
    n_units = w["hidden"].dim()[0][1]
    for strip in x["strips"][: x["length"]]:
        terms = [w["bias"], w["inputs"], dy.inputTensor(strip)]
        gates = dy.affine_transform(terms if hidden is None else [*terms, w["hidden"], hidden])
        keep, write, read, news = (dy.pick_range(gates, at * n_units, (at + 1) * n_units) for at in range(4))
        made = dy.cmult(dy.logistic(write), dy.tanh(news))
        cell = made if cell is None else dy.cmult(dy.logistic(keep), cell) + made
        hidden = dy.cmult(dy.logistic(read), dy.tanh(cell))
    return dy.tanh(w["head"] * hidden)


def _tree_lstm(w: Mapping[str, Any], x: Arrays) -> Any:
    n_units, most = w["head"].dim()[0][1], len(x["words"])

    def gated(gates: Any, children: Sequence[Any]) -> tuple[Any, Any]:
        write, read, *keep, news = (dy.pick_range(gates, at * n_units, (at + 1) * n_units) for at in range(5))
        cell = dy.cmult(dy.logistic(write), dy.tanh(news))
        for kept, (_, child_cell) in zip(keep, children, strict=False):
            cell += dy.cmult(dy.logistic(kept), child_cell)
        return dy.cmult(dy.logistic(read), dy.tanh(cell)), cell

    states = {}
    for leaf, word in enumerate(x["words"][: x["n_leaves"]]):
        states[leaf] = gated(dy.affine_transform([w["bias"], w["inputs"], w["words"][int(word)]]), ())
    root = states[0]
    for inner in range(x["n_leaves"] - 1):
        children = [states[int(x[side][inner])] for side in ("left", "right")]
        inputs = dy.concatenate([hidden for hidden, _ in children])
        root = gated(dy.affine_transform([w["bias"], w["children"], inputs]), children)
        states[most + inner] = root
    return dy.softmax(w["head"] * root[0])


_MODELS: dict[str, Model] = {"mlp": _mlp, "lstm": _lstm, "tree_lstm": _tree_lstm}
_OUTPUTS = {"mlp": "probabilities", "lstm": "features", "tree_lstm": "probabilities"}
#: Tables of which rows are looked up; other matrices stand left of their vectors in DyNet.
_TABLES = {"words"}


def contender(name: str, weights: Arrays, inputs: Arrays) -> Callable[[], dict[str, np.ndarray]]:
    """Return a model as a call on a batch, which builds its graph anew, as DyNet does for each batch."""
    collection = dy.ParameterCollection()
    held: dict[str, Any] = {}
    for key, value in weights.items():
        if key in _TABLES:
            held[key] = collection.lookup_parameters_from_numpy(value)
        else:
            held[key] = collection.parameters_from_numpy(np.ascontiguousarray(value.T))
    n_rows = len(next(iter(inputs.values())))
    rows = [{key: value[row] for key, value in inputs.items()} for row in range(n_rows)]
    model = _MODELS[name]

    def call(_owner: Any = collection) -> dict[str, np.ndarray]:  # parameters die with their collection
        dy.renew_cg()
        answers = [model(held, row) for row in rows]
        dy.forward(answers)
        return {_OUTPUTS[name]: np.stack([answer.npvalue() for answer in answers])}

    return call
