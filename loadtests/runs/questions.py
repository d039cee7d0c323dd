"""One model's requests as bytes, and whether an answer to one is right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loadtests.workload import TOLERANCE, equal
from rowwise.values import decode_json

__all__ = ["AUTHORIZATION", "Judge", "Question", "Questions"]

AUTHORIZATION = "Authorization"

#: Answers to one request that are remembered as right: batches of different sizes differ in the last bits.
_MAX_REMEMBERED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request's body, its own headers, and the body that it was answered alone with; None: any 200 is right."""

    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    answer: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What one model is asked. ``path`` is the URL's; ``headers`` are for all. ``source`` says where inputs are from.

    ``is_binary``: answers are binary tensors of the Open Inference Protocol, else row-form JSON. Two numbers are equal
    within ``tolerance``, absolute and relative.
    """

    model: str
    path: str
    questions: tuple[Question, ...]
    headers: tuple[tuple[str, str], ...] = ()
    weight: float = 1.0
    is_binary: bool = False
    tolerance: float = TOLERANCE
    source: str = ""

    @property
    def is_checked(self) -> bool:
        """Whether answers are compared with others."""
        return all(question.answer is not None for question in self.questions)

    def requests(self, host: str) -> list[bytes]:
        """Return every request, head and body, for HTTP/1.1 with keep-alive."""
        made = []
        for question in self.questions:
            headers = (("Host", host), *self.headers, *question.headers, ("Content-Length", str(len(question.body))))
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
            made.append(f"POST {self.path} HTTP/1.1\r\n{lines}\r\n".encode() + question.body)
        return made

    def by(self, token: str | None) -> Questions:
        """Return the same questions by somebody with another token; None: with none."""
        headers = tuple(header for header in self.headers if header[0] != AUTHORIZATION)
        return replace(self, headers=(*headers, (AUTHORIZATION, f"Bearer {token}")) if token else headers)

    def judge(self) -> Judge:
        """Return what judges answers."""
        return Judge(self)


class Judge:
    """Says whether answers are right; bytes that were right once for the same question are not read again."""

    __slots__ = ("_questions", "_right")

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._right: list[set[bytes] | None] = [
            None if question.answer is None else {question.answer} for question in questions.questions
        ]

    def accepts(self, index: int, body: bytes) -> bool:
        """Return whether a body of status 200 answers question ``index``."""
        right = self._right[index]
        if right is None or body in right:
            return True
        expected = self._questions.questions[index].answer
        assert expected is not None, "it has right answers"
        try:
            is_right = self._is_equal(body, expected)
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        if is_right and len(right) < _MAX_REMEMBERED:
            right.add(body)
        return is_right

    def _is_equal(self, body: bytes, expected: bytes) -> bool:
        tolerance = self._questions.tolerance
        if not self._questions.is_binary:
            got, wanted = decode_json(body)["predictions"], decode_json(expected)["predictions"]
            return equal(got, wanted, tolerance=tolerance)
        got, wanted = _tensors(body), _tensors(expected)
        return got.keys() == wanted.keys() and all(
            got[name][0] == wanted[name][0] and _is_close(got[name][1], wanted[name][1], tolerance) for name in wanted
        )


_BINARY = {"BOOL": "?", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"} | {
    f"{sign}INT{bits}": f"<{kind}{bits // 8}" for sign, kind in (("", "i"), ("U", "u")) for bits in (8, 16, 32, 64)
}


def _tensors(body: bytes) -> Mapping[str, tuple[list[int], np.ndarray[Any, Any]]]:
    """Return shape and values of each output of a binary answer; of a datatype that NumPy lacks, the bytes."""
    told, end = json.JSONDecoder().raw_decode(body.decode("latin-1"))
    found = {}
    for output in told["outputs"]:
        n_bytes = output["parameters"]["binary_data_size"]
        part, end = body[end : end + n_bytes], end + n_bytes
        found[output["name"]] = output["shape"], np.frombuffer(part, _BINARY.get(output["datatype"], "u1"))
    if end != len(body):
        raise ValueError("bytes are left over")
    return found


def _is_close(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], tolerance: float) -> bool:
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return False
    if got.dtype.kind == "f":
        return bool(np.allclose(got, expected, rtol=tolerance, atol=tolerance))
    return bool(np.array_equal(got, expected))
