"""Is the log so small that starting Java is most of the work?

What comes in: inputs as they were given. What goes out: yes, or no.
Rules: 1. Asked before Java is started, so only of folders of this machine; of any other the answer is no. 2. It looks
no further than it must.
Not here: what follows (`session.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

SMALL = 8 << 20
"""bytes: some six million events in stretches, a million that come alone"""
HERE_ROWS = 2_000_000
"""of a small log, up to which the driver looks at them itself: two seconds' work, and some hundred MB"""
_FILE = "file://"


def is_small(inputs: Sequence[str]) -> bool:
    """False if there are none."""
    left = SMALL
    for given in inputs:
        folder = Path(given.removeprefix(_FILE))
        if not folder.is_dir():
            return False
        for root, _, names in os.walk(folder, followlinks=True):
            for name in names:
                try:
                    left -= os.stat(os.path.join(root, name)).st_size
                except OSError:
                    # Retention takes files away; what else it may be, the job says.
                    continue
                if left < 0:
                    return False
    return bool(inputs)
