"""Every error has a gRPC status code, and it follows from the same table as over HTTP."""

from __future__ import annotations

import grpc
import pytest

from server.batching.errors import TooManyRows
from server.errors import RowwiseError
from server.protocol import TooManyInstances
from server.web.rpc.codes import _BY_CLASS, BY_STATUS, Code
from server.web.status import STATUS


def test_the_codes_are_grpcs() -> None:
    for code in Code:
        assert grpc.StatusCode[code.name].value[0] == code


@pytest.mark.parametrize("kind", STATUS)
def test_every_error_has_a_code(kind: type[RowwiseError]) -> None:
    assert _BY_CLASS.get(kind, BY_STATUS[STATUS[kind]]) is not Code.OK


def test_what_trying_again_does_not_make_smaller_is_an_invalid_argument() -> None:
    assert {_BY_CLASS[TooManyRows], _BY_CLASS[TooManyInstances]} == {Code.INVALID_ARGUMENT}
