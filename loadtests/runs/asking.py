"""Turns a served model and examples of it into questions: what it is asked, and, where wanted, what is right.

The first question of each model is asked alone before anything is loaded, so that inputs that the model refuses, a
token that is wrong, or a model that isn't there are told as a sentence, and not as a million failures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from loadtests.runs.questions import AUTHORIZATION, Question, Questions
from rowwise._calls import JSON, Calls
from rowwise._http import Connection, Target, model_path
from rowwise._metadata import RemoteSignature
from rowwise._predictions import encode_instances
from rowwise._retries import Retries
from rowwise._steps import Send
from rowwise._tensors import JSON_LENGTH, TensorForm
from rowwise.errors import RowwiseClientError, WrongInputs

__all__ = ["Asked", "Asker", "Form"]

Form = Literal["json", "binary"]

#: A server that others keep busy may refuse a question for a moment.
_RETRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One model of a mix: its weight, and its examples, which come from ``source``."""

    model: str
    weight: float
    examples: Sequence[Any]
    source: str


class Asker:
    """Knows one server. Errors of all methods: RowwiseClientError."""

    def __init__(self, url: str, *, token: str | None, ca: str | None, timeout_s: float) -> None:
        self._token = token
        self._timeout_s = timeout_s
        self._connection = Connection(Target(url, token=token, connections=1, ca=ca))
        self._calls = Calls(timeout_s=timeout_s, retries=Retries(_RETRIES), binary=False)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def signature(self, model: str) -> RemoteSignature:
        """Return what a model takes."""
        metadata = self._connection.run(self._calls.ask(model_path(model, None, "/metadata")))
        return RemoteSignature.from_metadata(metadata)

    def questions(self, asked: Asked, signature: RemoteSignature, *, form: Form, tolerance: float) -> Questions:
        """Return the requests of one model, not checked. Errors: WrongInputs too."""
        if form == "json":
            path, made = model_path(asked.model, None, ":predict"), _in_json(asked, signature)
        else:
            path, made = model_path(asked.model, None, "/infer", api="v2"), _in_binary(asked, signature)
        common = [("Content-Type", "application/octet-stream" if form == "binary" else JSON["Content-Type"])]
        # Work that nobody waits for any more is the server's to drop.
        common.append(("X-Request-Timeout-Ms", str(max(1, round(self._timeout_s * 1e3)))))
        return Questions(
            model=asked.model,
            path=path,
            questions=made,
            headers=tuple(common),
            weight=asked.weight,
            is_binary=form == "binary",
            tolerance=tolerance,
            source=asked.source,
        ).by(self._token)

    def tried(self, questions: Questions) -> Questions:
        """Ask the first question, and return all of them if it was answered."""
        self._alone(questions, 0)
        return questions

    def checked(self, questions: Questions, *, on_step: Callable[[], None] = lambda: None) -> Questions:
        """Ask every question alone, and return them with their answers."""
        answered = []
        for index, question in enumerate(questions.questions):
            answered.append(replace(question, answer=self._alone(questions, index)))
            on_step()
        return replace(questions, questions=tuple(answered))

    def _alone(self, questions: Questions, index: int) -> bytes:
        question = questions.questions[index]
        request = Send(
            method="POST",
            path=questions.path,
            content=question.body,
            repeats=True,
            # The connection has the token already.
            headers={name: value for name, value in (*questions.headers, *question.headers) if name != AUTHORIZATION},
        )
        try:
            body: bytes = self._connection.run(self._calls.send(request)).content
        except RowwiseClientError as error:
            error.args = (f"question {index} to model {questions.model!r} ({questions.source}), asked alone: {error}",)
            raise
        return body


def _in_json(asked: Asked, signature: RemoteSignature) -> tuple[Question, ...]:
    made = []
    for index, example in enumerate(asked.examples):
        try:
            made.append(Question(body=encode_instances(asked.model, signature, [example])))
        except WrongInputs as error:
            raise WrongInputs(f"{asked.source}, example {index}: {error}") from error
    return tuple(made)


def _in_binary(asked: Asked, signature: RemoteSignature) -> tuple[Question, ...]:
    form = TensorForm(signature)
    made = []
    for index, example in enumerate(asked.examples):
        encoded = form.encode([example])
        if encoded is None:
            raise WrongInputs(
                f"{asked.source}, example {index} of model {asked.model!r} can't travel as binary tensors, or is not "
                "what the model takes: --form json says which"
            )
        body, n_json = encoded
        made.append(Question(body=body, headers=((JSON_LENGTH, str(n_json)),)))
    return tuple(made)
