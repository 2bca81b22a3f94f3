"""A network with nothing but loopback, for one run: fixed ports are free, and no host outside can be reached.

What comes in: a command.
What goes out: the same command, to be run in a network namespace of its own (Linux; unshare and ip).
Rules: none but that.
Not here: what runs in it (`__main__.py`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

LOOPBACK_UP = 'ip link set lo up && exec "$@"'


def isolated(command: Sequence[str]) -> list[str]:
    """Raises RuntimeError where there are no network namespaces."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        raise RuntimeError("network namespaces are needed: unshare (util-linux) and ip (iproute2)")
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--net", *as_root, "sh", "-c", LOOPBACK_UP, "sh", *command]
