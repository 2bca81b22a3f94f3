"""Whether a file with a secret or a private key is private.

What comes in: its path. What goes out: a few words on who else can read or change it; none if nobody can.
Rules: 1. The owner's group may read it: keys of root's are given to a service so. 2. Links are followed: what counts
is the file.
Not here: what follows (a start is refused, or told).
"""

from __future__ import annotations

import stat
from pathlib import Path


def exposed(path: Path) -> str:
    """Empty: it is private. Raises OSError."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & (stat.S_IRWXO | stat.S_IWGRP):
        return ""
    return f"others can read or change {path} (mode {mode:o})"
