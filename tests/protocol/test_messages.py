"""The compiled protocol buffers: current, ours alone, and those that stock clients have."""

from __future__ import annotations

import subprocess
import sys

from google.protobuf import descriptor_pool

from scripts.compile_protos import COMPILED, compile_protos
from server.protocol.messages import message_class, pool
from tests.protocol.stock_messages import compared_with_stock_clients


def test_what_is_compiled_is_what_is_written() -> None:
    assert compile_protos() == COMPILED.read_bytes(), "run make protos"


def test_they_are_in_a_pool_of_their_own() -> None:
    assert pool() is not descriptor_pool.Default()
    assert message_class("inference.ModelInferRequest")(model_name="m").SerializeToString() == b"\n\x01m"


def test_reading_them_loads_no_tensorflow() -> None:
    script = "import sys, server.protocol.oip_proto, server.protocol.tfs_proto\nassert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_tritonclient_has_the_same_fields_under_the_same_numbers() -> None:
    import tritonclient.grpc

    assert tritonclient.grpc.service_pb2.DESCRIPTOR.package == "inference"
    assert compared_with_stock_clients({"inference"}) > 30
