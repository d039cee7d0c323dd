"""Names of models for the shell's completion, asked of the server."""

from __future__ import annotations

import typer

from rowwise.cli.client_settings import read_client_file
from rowwise.errors import RowwiseClientError

__all__ = ["model_names"]

#: Whoever presses the tabulator waits for it.
_TIMEOUT_S = 1.0
_URL = "http://127.0.0.1:8000"


def model_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the models of the server that the command line so far would ask; none where it does not answer."""
    from rowwise.client import Client

    try:
        given = {name: context.params.get(name) for name in ("url", "token", "ca")}
        # Unless it was said, it is as for the command itself: what is on the line was only begun to be read.
        file = read_client_file(context.find_root().params.get("settings")).values
        url = given["url"] if given["url"] not in (None, _URL) else file.get("url", _URL)
        with Client(
            url,
            given["token"] or file.get("token"),
            ca=given["ca"] or file.get("ca"),
            timeout_s=_TIMEOUT_S,
            retries=0,
            progress=False,
        ) as client:
            names = {status.model for status in client.models()}
    except (RowwiseClientError, typer.BadParameter):
        return []
    return sorted(name for name in names if name.startswith(incomplete))
