"""Write docs/ops.md, or the file that is named."""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.op_page.page import page

Path(sys.argv[1] if len(sys.argv) > 1 else "docs/ops.md").write_text(page())
