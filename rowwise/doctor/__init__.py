"""What ``rowwise doctor`` looks at: one file for each thing, each a function from facts to findings."""

from __future__ import annotations

from rowwise.doctor.examination import examine
from rowwise.doctor.finding import Finding, Level

__all__ = ["Finding", "Level", "examine"]
