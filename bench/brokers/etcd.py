"""The command line of a private etcd: of the bench's clusters, of `make cluster` and of the tests.

What comes in: the program, a directory, where it listens. What goes out: a command; its environment.
Rules: etcd also reads ETCD_ variables; those of the caller are not handed on, or a setting of the machine's own etcd
would be this one's.
Not here: the process (`clusters.py`, `scripts/cluster.py`, `tests/harness/etcd.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

QUIET = ("--log-level", "error")


def etcd_command(
    program: str,
    directory: Path,
    client: str,
    peer: str,
    *,
    name: str = "one",
    members: str = "",
    options: Sequence[str] = QUIET,
) -> list[str]:
    """`client`, `peer`: URLs that it listens at; `members`: `name=URL` of all of a cluster, else it is one alone."""
    return [
        *(program, "--name", name, "--data-dir", str(directory), "--logger", "zap"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", members or f"{name}={peer}"),
        *options,
    ]


def etcd_environment() -> dict[str, str]:
    """All that etcd is to see of this process's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
