"""Running the pipeline's jobs as an operator does, and reading their tables.

What comes in: a job's name and arguments. What goes out: how it ended; rows of a table.
Rules: a process of its own for each job, on two cores and 3 GB.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from tests.clients.broker_process import REPOSITORY

TIMEOUT_S = 1800


def command(job: str, *arguments: str | Path) -> list[str]:
    size = ["--master", "local[2]", "--memory", "3g"]
    return [sys.executable, "-m", "amqpd_spark", job, *map(str, arguments), *size]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'spark'}"}


def run(job: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(job, *arguments), env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    print(done.stdout)
    assert done.returncode in (0, 1), done.stderr[-4000:]
    return done


def table(folder: Path) -> list[dict[str, Any]]:
    return ds.dataset(folder, format="parquet", partitioning="hive").to_table().to_pylist()
