"""What ``lagom doctor`` looks at: one file a question, each a list of findings with their remedies.

Nothing here imports torch or needs a GPU: wheels are read from their metadata, libraries are asked in a process of
their own.
"""

from __future__ import annotations

from lagom.doctor.examination import examine
from lagom.doctor.finding import Finding, Level

__all__ = ["Finding", "Level", "examine"]
