"""Programs of Debian that tests run beside the broker: found, or installed once.

What comes in: the names of a program and of its package. What goes out: where it is.
Rules: 1. Where it is missing, root installs it; else the test is skipped, with the reason. 2. Several processes may
ask at once: they wait for each other.
Not here: running them (`etcd.py`, `tests/admin/browsing.py`).
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

import pytest

INSTALL_SECONDS_MAX = 600


@functools.cache
def debian_program(program: str, package: str) -> str:
    """Its path. Skips the test when it is nowhere."""
    if (found := shutil.which(program)) is not None:
        return found
    apt_get = shutil.which("apt-get")
    if os.geteuid() != 0 or apt_get is None:
        pytest.skip(f"needs {program} (apt-get install {package}), and only root may install it")
    apt = [apt_get, "-y", "-o", f"DPkg::Lock::Timeout={INSTALL_SECONDS_MAX}"]
    install = [*apt, "install", "--no-install-recommends", package]
    try:
        # A fresh machine may not know yet which packages there are.
        if not _ran(install):
            _ran([*apt, "update"])
            _ran(install)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"needs {program}, and apt-get cannot install {package}: {error!r}")
    if (found := shutil.which(program)) is None:
        pytest.skip(f"needs {program}, and apt-get could not install {package}")
    return found


def _ran(command: list[str]) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=INSTALL_SECONDS_MAX)
    return done.returncode == 0
