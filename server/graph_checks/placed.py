"""Ops that read or write files, which may stand only where TensorFlow's loader names the file.

Theory of operation. A SavedModel can't do without them: its variables are restored by RestoreV2, its vocabularies read
by InitializeTableFromTextFileV2. What makes them safe is where the file's name comes from, and when they run.

1. The loader feeds the saver's filename tensor with the path of the variables, and each asset's tensor with the path of
   its file. Fed, it does not matter what the graph itself holds there; not fed, it does. So each op may be reached only
   by what runs with its feed: checkpoints are read by the restoring alone and written by nothing, tables from files are
   filled by the initialization alone (and by the objects of a SavedModel, which are given assets, not names).
2. The name is traced from the op back to the feed: through a function's arguments to every one of its callers, through
   the variable that TensorFlow keeps an asset's path in, through the suffix that sharded checkpoints put behind it.
   Whatever else a name is made of is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from server.graph_checks.bodies import MAIN, Body, Scan, node_of
from server.graph_checks.errors import FileNameRefused, place, quoted
from server.graph_checks.roots import Reached, Run

__all__ = ["FileNames", "check_reach"]


class _Feed(StrEnum):
    """What the loader puts in the place of a tensor."""

    CHECKPOINT = "the path of the variables"
    ASSET = "the path of an asset"


#: By op, the inputs that are file names, and what they may be fed with.
_NAMES: Mapping[str, tuple[tuple[int, ...], _Feed]] = {
    "InitializeTableFromTextFileV2": ((1,), _Feed.ASSET),
    "MergeV2Checkpoints": ((0, 1), _Feed.CHECKPOINT),
    "RestoreV2": ((0,), _Feed.CHECKPOINT),
    "SaveV2": ((0,), _Feed.CHECKPOINT),
}
_MAY_BE_REACHED_BY: Mapping[str, frozenset[Run]] = {
    "InitializeTableFromTextFileV2": frozenset({Run.INITIALIZE, Run.OBJECT}),
    "MergeV2Checkpoints": frozenset(),
    "RestoreV2": frozenset({Run.RESTORE}),
    "SaveV2": frozenset(),
}
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
#: Hand on the names that they are given: all of their inputs.
_HANDING_ON = frozenset({"Identity", "Pack"})
#: What savers put behind the path: no slash that could lead out of the directory.
_SUFFIX = re.compile(rb"(_temp(_[0-9a-f]{1,64})?/)?(part)?|\.part")
_NEXT_STEP = "save the model again with tf.saved_model.save"


def check_reach(scans: Mapping[str, Scan], reached: Mapping[Run, Reached]) -> None:
    """Errors: FileNameRefused for an op that is run when the loader does not feed its file's name."""
    for scan in scans.values():
        for node in scan.placed:
            for run, what in reached.items():
                if run in _MAY_BE_REACHED_BY[node.op]:
                    continue
                if node.name in what.nodes if scan.body.name == MAIN else scan.body.name in what.functions:
                    raise FileNameRefused(
                        f"op {node.op} ({place(node.name, scan.body.name)}) is run by {run}: files are read and "
                        f"written by TensorFlow's own loader alone; {_NEXT_STEP}, or take it out of the function"
                    )


class FileNames:
    """Where the names of files come from, in one meta graph. ``assets`` are the tensors that are fed with assets."""

    def __init__(self, meta_graph: Any, scans: Mapping[str, Scan], assets: Iterable[str]) -> None:
        self._scans = scans
        self._objects = meta_graph.object_graph_def
        self._fed = {_output(tensor): _Feed.ASSET for tensor in assets}
        if meta_graph.saver_def.filename_tensor_name:
            self._fed[_output(meta_graph.saver_def.filename_tensor_name)] = _Feed.CHECKPOINT

    def check(self) -> None:
        """Errors: FileNameRefused, naming the op and what its file's name is made of."""
        for scan in self._scans.values():
            for node in scan.placed:
                inputs, feed = _NAMES[node.op]
                for index in inputs:
                    _Trace(self, node, scan.body, feed).follow_input(node, index, scan.body)

    def fed(self, tensor: str, body: Body) -> _Feed | None:
        """Return what a tensor is fed with, None if it is not."""
        return self._fed.get(_output(tensor)) if body.name == MAIN else None

    def callers(self, function: str) -> list[tuple[Body, Any]]:
        """Return every node that calls a function, with its body."""
        return [(scan.body, node) for scan in self._scans.values() for called, node in scan.calls if called == function]

    def bound_to_asset(self, body: Body, argument: int) -> bool | None:
        """Return whether the SavedModel's objects give an asset as that argument; None if no object has the function.

        The loader gives objects as a function's last arguments.
        """
        if body.name not in self._objects.concrete_functions:
            return None
        bound = list(self._objects.concrete_functions[body.name].bound_inputs)
        index = argument - (len(body.arguments) - len(bound))
        if index < 0 or not 0 <= bound[index] < len(self._objects.nodes):
            return False
        return bool(self._objects.nodes[bound[index]].WhichOneof("kind") == "asset")

    def variable_is_fed(self, body: Body, handle: str, feed: _Feed) -> bool:
        """Return whether a variable of the main graph only ever holds what its one assignment is fed with."""
        variable = body.by_name.get(node_of(handle))
        if body.name != MAIN or variable is None or variable.op != "VarHandleOp":
            return False
        # Another node with the same shared name would be the same variable.
        names = [_shared_name(node) for scan in self._scans.values() for node in scan.body.nodes if _is_variable(node)]
        if names.count(_shared_name(variable)) != 1:
            return False
        for node in body.nodes:
            if variable.name not in map(node_of, node.input) or node.op in ("ReadVariableOp", "VarIsInitializedOp"):
                continue
            if node.op != "AssignVariableOp" or self.fed(node.input[1], body) is not feed:
                return False
        return True


class _Trace:
    """The way back from one input of one op."""

    def __init__(self, names: FileNames, op: Any, body: Body, feed: _Feed) -> None:
        self._names = names
        self._op = op
        self._where = place(op.name, body.name)
        self._feed = feed
        self._seen: set[tuple[str, str]] = set()

    def follow_input(self, node: Any, index: int, body: Body) -> None:
        """Errors: FileNameRefused."""
        inputs = [name for name in node.input if not name.startswith("^")]
        if index >= len(inputs):
            raise self._refusal(f"it has no input {index}")
        self._follow(inputs[index], body)

    def _follow(self, tensor: str, body: Body) -> None:
        if (body.name, tensor) in self._seen:
            return
        self._seen.add((body.name, tensor))
        feed = self._names.fed(tensor, body)
        if feed is self._feed:
            return
        if tensor in body.arguments:
            self._follow_callers(body, body.arguments.index(tensor))
            return
        node = body.by_name.get(node_of(tensor))
        if node is None:
            raise self._refusal(f"it comes from {quoted(tensor)}, which is not there")
        match node.op:
            case op if op in _HANDING_ON:
                for index in range(sum(not name.startswith("^") for name in node.input)):
                    self.follow_input(node, index, body)
            case "ShardedFilename":
                self.follow_input(node, 0, body)
            case "StringJoin" if all(_is_suffix(name, body) for name in node.input[1:]):
                self.follow_input(node, 0, body)
            case "ReadVariableOp" if self._names.variable_is_fed(body, node.input[0], self._feed):
                return
            case _:
                raise self._refusal(f"it comes from op {node.op} ({place(node.name, body.name)})")

    def _follow_callers(self, body: Body, argument: int) -> None:
        callers = self._names.callers(body.name)
        is_bound = self._names.bound_to_asset(body, argument)
        if is_bound is False or (is_bound and self._feed is not _Feed.ASSET) or not (callers or is_bound):
            raise self._refusal(f"it is an argument of function {quoted(body.name)} that nothing gives {self._feed}")
        for caller, node in callers:
            if node.op not in _CALLS:
                raise self._refusal(f"it is handed on by op {node.op} ({place(node.name, caller.name)})")
            self.follow_input(node, argument, caller)

    def _refusal(self, why: str) -> FileNameRefused:
        return FileNameRefused(
            f"op {self._op.op} ({self._where}) takes the name of a file that is not {self._feed} as TensorFlow's "
            f"loader gives it: {why}; {_NEXT_STEP}"
        )


def _is_suffix(tensor: str, body: Body) -> bool:
    if tensor.startswith("^"):
        return True
    node = body.by_name.get(node_of(tensor))
    if node is None:
        return False
    if node.op in ("Select", "SelectV2"):
        return all(_is_suffix(name, body) for name in node.input[1:3])
    if node.op != "Const" or node.attr["value"].WhichOneof("value") != "tensor":
        return False
    return all(_SUFFIX.fullmatch(text) for text in node.attr["value"].tensor.string_val)


def _is_variable(node: Any) -> bool:
    return str(node.op) == "VarHandleOp"


def _shared_name(node: Any) -> bytes:
    name = bytes(node.attr["shared_name"].s) if "shared_name" in node.attr else b""
    return name or str(node.name).encode()


def _output(tensor: str) -> str:
    return tensor if ":" in tensor else f"{tensor}:0"
