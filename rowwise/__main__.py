"""``python -m rowwise`` is the ``rowwise`` command."""

from __future__ import annotations

from rowwise.cli import main

if __name__ == "__main__":
    main()
