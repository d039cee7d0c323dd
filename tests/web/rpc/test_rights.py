"""Rights over gRPC: every method by the same table as over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from server.protocol.messages import message_class
from server.rights import add_token, revoke_token
from server.web.rpc.services import Services
from server.web.scopes import ASK, MANAGE, OPEN, PREDICT, READ, RPC_RULES, Rule
from tests.web.rights import ALL, entry, tokens
from tests.web.rpc.serving import Calling, infer_request, over_grpc
from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedModel

OIP = "/inference.GRPCInferenceService/"
TFS = "/tensorflow.serving."
CALLERS = (None, "wrong", "predict", "read", "manage", "elsewhere", ALL)
LET_IN: dict[Rule, set[str]] = {
    PREDICT: {"predict"},
    ASK: {"predict", "read", "manage"},
    READ: {"read", "manage"},
    MANAGE: {"manage"},
}
#: Methods of no model, or that are told of none here: they show what is in reach, or say that they are not offered.
OF_NO_MODEL = ("RepositoryIndex", "HandleReloadConfigRequest", "Classify", "Regress", "MultiInference")


def metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    return () if token is None else (("authorization", f"Bearer {token}"),)


def message_for(path: str) -> Any:
    """A message to a method that asks about "sum"."""
    method = path.rpartition("/")[2]
    if path.startswith(OIP):
        if method in ("ModelInfer", "ModelStreamInfer"):
            return infer_request([1, 2, 3])
        message = message_class(f"inference.{method}Request")()
        for field in ("name", "model_name"):
            if field in message.DESCRIPTOR.fields_by_name:
                setattr(message, field, "sum")
        return message
    if method in ("Predict", "GetModelMetadata", "GetModelStatus"):
        message = message_class(f"{TFS[1:]}{method}Request")()
        message.model_spec.name = "sum"
        return message
    return message_class("grpc.health.v1.HealthCheckRequest")()


async def status_of(calling: Calling, path: str, token: str | None) -> str:
    """The code of a call: that of its first message, where it is a stream."""
    body = message_for(path).SerializeToString()
    if path.endswith(("StreamInfer", "Watch", "ServerReflectionInfo")):
        stream = calling.channel.stream_stream(path)(iter([body]), metadata=metadata(token))
        try:
            answer = await stream.read()
        except grpc.aio.AioRpcError:
            answer = None  # it ended before its message had left
        if not isinstance(answer, bytes):
            return str((await stream.code()).name)
        stream.cancel()
        return "PERMISSION_DENIED" if b"has no right" in answer else "OK"
    try:
        await calling.call(path, body, metadata=metadata(token))
    except Exception as error:  # noqa: BLE001
        return error.code().name  # type: ignore[attr-defined,no-any-return]
    return "OK"


def test_every_method_has_a_rule_and_every_rule_a_method(tmp_path: Path) -> None:
    service = Service(tmp_path)
    assert sorted(Services(service.app, service.catalog, asyncio.Event()).paths) == sorted(RPC_RULES)


def test_a_method_without_a_rule_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(tmp_path)
    monkeypatch.delitem(RPC_RULES, f"{OIP}ModelConfig")
    with pytest.raises(KeyError, match="ModelConfig"):
        Services(service.app, service.catalog, asyncio.Event())


def test_every_method_lets_in_whom_its_rule_names_and_nobody_else(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        wrong = []
        for path, rule in RPC_RULES.items():
            for caller in CALLERS:
                calling.service.catalog.serve(ScriptedModel("sum", 3))
                may = rule is OPEN or caller == ALL or caller in LET_IN.get(rule, ())
                if caller == "elsewhere" and path.endswith(OF_NO_MODEL):
                    may = True
                expected = "in" if may else "UNAUTHENTICATED" if caller in (None, "wrong") else "PERMISSION_DENIED"
                status = await status_of(calling, path, caller)
                found = status if status in ("UNAUTHENTICATED", "PERMISSION_DENIED") else "in"
                if found != expected:
                    wrong.append((path, caller, found, expected))
        assert not wrong

    over_grpc(test, tmp_path, token=ALL, tokens=tokens())


def test_lists_show_what_is_in_reach(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        calling.service.catalog.serve(ScriptedModel("other-one", 1))
        for token, names in (("read", {"sum"}), ("elsewhere", {"other-one"}), (ALL, {"sum", "other-one"})):
            for method, field in (("RepositoryIndex", "models"), ("ModelStatistics", "model_stats")):
                body = await calling.call(f"{OIP}{method}", metadata=metadata(token))
                answer = message_class(f"inference.{method}Response").FromString(body)
                assert {each.name for each in getattr(answer, field)} == names

    over_grpc(test, tmp_path, token=ALL, tokens=tokens())


def test_a_stream_that_outlives_its_token_predicts_no_more(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    add_token(file, entry("a", "predict"))

    async def test(calling: Calling) -> None:
        stream = calling.channel.stream_stream(f"{OIP}ModelStreamInfer")(metadata=metadata("a"))
        await stream.write(infer_request([1, 2, 3]).SerializeToString())
        assert b"the token" not in await stream.read()
        revoke_token(file, "a")
        calling.service.app.gate.look()
        await stream.write(infer_request([1, 2, 3]).SerializeToString())
        assert b"the token is not the right one" in await stream.read()
        stream.cancel()

    over_grpc(test, tmp_path, tokens_file=file)


def test_a_rate_holds_over_grpc_and_says_when_to_come_again(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        for _ in range(2):
            await calling.infer(infer_request([1, 2, 3]), metadata=metadata("a"))
        code, sentence, more = await calling.refused(calling.infer(infer_request([1, 2, 3]), metadata=metadata("a")))
        assert (code, "rows" in sentence, int(more["retry-after"]) > 50) == ("RESOURCE_EXHAUSTED", True, True)

    over_grpc(test, tmp_path, tokens=(entry("a", "predict", predict_rows_per_s=0.01, predict_rows_burst=2),))


def test_a_stranger_is_refused_before_his_message_comes(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        stream = calling.channel.stream_unary(f"{OIP}ModelInfer")()
        # Nothing is sent.
        assert (await stream.code()).name == "UNAUTHENTICATED"

    over_grpc(test, tmp_path, tokens=tokens())


def test_a_page_whose_name_was_made_to_point_here_manages_nothing(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        options = [("grpc.default_authority", "evil.example:8001")]
        async with grpc.aio.insecure_channel(calling.address, options=options) as channel:
            request = message_class("inference.RepositoryModelUnloadRequest")(model_name="sum")
            calling_it = channel.unary_unary(f"{OIP}RepositoryModelUnload")(request.SerializeToString())
            assert (await calling.refused(calling_it))[0] == "PERMISSION_DENIED"
        assert calling.service.catalog.records["sum", 3].active

    over_grpc(test, tmp_path)


def test_the_audit_log_tells_of_grpc_too(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        for token, model in (("manage", "sum"), ("manage", "s-nobody"), ("manage", "other-one"), (None, "sum")):
            request = message_class("inference.RepositoryModelUnloadRequest")(model_name=model)
            unload = calling.call(f"{OIP}RepositoryModelUnload", request, metadata=metadata(token))
            if (token, model) == ("manage", "sum"):
                await unload
            else:
                await calling.refused(unload)
        lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
        assert {line["what"] for line in lines} == {f"{OIP}RepositoryModelUnload"}
        assert [tuple(line.get(key) for key in ("event", "who", "model", "result")) for line in lines] == [
            ("asked", "manage", "sum", None),
            ("answered", "manage", "sum", "OK"),
            ("asked", "manage", "s-nobody", None),
            ("answered", "manage", "s-nobody", "ModelNotFound"),
            ("refused", "manage", "other-one", "Forbidden"),
            ("refused", "anybody", None, "Unauthorized"),
        ]

    over_grpc(test, tmp_path, tokens=tokens(), audit_log=tmp_path / "audit")
