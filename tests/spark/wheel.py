"""The wheel of `amqpd-spark`, built from this checkout's `spark/`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def built(folder: Path) -> Path:
    """Built in a copy in `folder`: building writes beside the sources. With the setuptools of this environment."""
    source = shutil.copytree(ROOT / "spark", folder / "spark", ignore=shutil.ignore_patterns("*.egg-info", "build"))
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        "../dist",
        ".",
    ]
    said = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    [made] = (folder / "dist").glob("amqpd_spark-*.whl")
    return made
