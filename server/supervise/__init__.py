"""Several processes that are one server: a supervisor, the engine, and HTTP workers on one port.

Start reading at ``supervision`` (what is decided), then ``supervisor`` (how it is carried out). The supervisor loads
neither models nor HTTP, so that there is little that can end it.
"""

__all__: list[str] = []
