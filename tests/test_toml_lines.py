from __future__ import annotations

import pytest

from server.toml_lines import line_of

TEXT = '''# port = 1
note = """
port = 2
queue_rows = 3
"""
"port" = 4
models = [
  "a=b:c",
  "port = 5",
]
bucket.name = "x"
port_of = 6

[client]
url = "http://gpu1:8000"  # token = "no"
[[tokens]]
name = "shop"
[[tokens]]
name = "ci"
'''


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (("port",), 6),
        (("models",), 7),
        (("bucket", "name"), 11),
        (("client",), 14),
        (("client", "url"), 15),
        (("client", "token"), None),
        (("tokens",), 16),
        (("tokens", "name"), 17),
        (("queue_rows",), None),
        (("absent",), None),
    ],
)
def test_a_key_is_found_where_its_statement_begins(keys: tuple[str, ...], line: int | None) -> None:
    assert line_of(TEXT, *keys) == line


def test_what_is_no_toml_has_the_lines_before_its_fault() -> None:
    assert line_of("port = 1\nqueue_rows = \n", "port") == 1
    assert line_of("port = 1\nqueue_rows = \n", "queue_rows") is None
