"""Entry point."""

from __future__ import annotations

import json
from pathlib import Path

from scripts.dashboard.panel import dashboard
from scripts.dashboard.panels import ROWS

PATH = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "dashboards" / "rowwise.json"


def main() -> None:
    """Write the file."""
    PATH.write_text(json.dumps(dashboard(ROWS), indent=2) + "\n")
    print(PATH)


if __name__ == "__main__":
    main()
