"""The console: a page at ``/`` that shows what the server does, and lets those with the right change it.

::

    page in a browser                           server
    ─────────────────                           ──────
    GET /, /console/{file}             ──────>  pages     open: they hold no data
    GET /v1/console/session            ──────>  routes    who am I, what may I
    GET /v1/console/live   <═ events ══ 1 Hz ══ live      one snapshot a second for all who watch
    the API that everybody has         ──────>  /v1/..., /v2/...

Nothing is counted for the page that is not counted without it; a second costs one reading of the counters and, for each
different view, one encoding. With several HTTP processes all of it runs in the engine's, and workers pass it on.
"""

from __future__ import annotations

from server.web.console.live import Live
from server.web.console.pages import pages_router
from server.web.console.routes import console_router

__all__ = ["Live", "console_router", "pages_router"]
