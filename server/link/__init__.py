"""The link between HTTP worker processes and the engine process: rows one way, answers the other, over a Unix socket.

Start reading at ``messages`` (what is said), then ``frames`` and ``columns`` (how arrays travel) and ``connection`` (on
what), then the two ends: ``worker_end`` and ``engine_end``. Both ends are started by one supervisor from one
installation, so that they always speak the same version; nothing of this leaves the machine.
"""

__all__: list[str] = []
