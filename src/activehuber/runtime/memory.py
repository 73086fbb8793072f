"""How much memory there is."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np


def memory_limit() -> float:
    """Bytes: the smaller of physical memory and the cgroup's limit; inf if not known."""
    try:
        physical = float(os.sysconf("SC_PAGE_SIZE")) * float(os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        physical = np.inf
    limits = [physical if physical > 0.0 else np.inf]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        path = Path("/sys/fs/cgroup") / name
        if path.is_file():
            text = path.read_text().strip()
            if text.isdigit():
                limits.append(float(text))
    return min(limits)
