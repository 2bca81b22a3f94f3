"""Makes the archive of Java's classes, with which every later start is quicker.

What comes in: nothing. What goes out: the file, in the user's cache.
Rules: 1. Java writes what it has loaded when it ends, so each job runs once, on a log of a few messages. 2. The file
is there whole or not at all.
Not here: where it is and how it is used (`class_archive.py`).
"""

from __future__ import annotations

import contextlib
import io
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from pyspark import SparkContext

from amqpd_spark import all_jobs, class_archive, door, generate
from amqpd_spark.door import Refused
from amqpd_spark.java import NoJava, require_java
from amqpd_spark.session import JAVA_OPTIONS, QUICK, start

EVENTS = 20_000
END_S = 300
"""for Java to write it, on a machine that is very busy"""


@click.command("prepare", cls=door.Command)
def command() -> None:
    """Make later starts quicker on this machine: once, and again after an update of Java or PySpark.

    Takes a minute or two, and 180 MB in the user's cache ($XDG_CACHE_HOME, or ~/.cache). The file may be deleted at
    any time.
    """
    try:
        require_java()
    except NoJava as error:
        raise Refused(str(error)) from error
    if SparkContext._gateway is not None:
        raise Refused("Java runs already in this process: amqpd-spark prepare is a command of its own")
    file = class_archive.place()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=file.parent, prefix=".prepare-") as folder:
            _make(Path(folder))
            (Path(folder) / file.name).replace(file)
    except OSError as error:
        raise Refused(f"{file} cannot be written: {error.strerror or error}") from error
    click.echo(f"{file}: {file.stat().st_size / 1e6:.0f} MB")


def _make(folder: Path) -> None:
    """Raises FileNotFoundError if Java did not write it."""
    options = f"{QUICK} {class_archive.made(folder / class_archive.place().name)}"
    spark = start("prepare", "local[2]", conf=[(JAVA_OPTIONS, options)])
    gateway: Any = SparkContext._gateway
    log, tables = str(folder / "log"), str(folder / "tables")
    steps = (
        (generate.command, ["--output", log, "--events", str(EVENTS), "--hours", "2"]),
        (all_jobs.command, ["--input", log, "--output", tables]),
    )
    for number, (job, arguments) in enumerate(steps, 1):
        click.echo(f"step {number} of {len(steps) + 1} ...")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            job.main(arguments, standalone_mode=False)
    click.echo(f"step {len(steps) + 1} of {len(steps) + 1} ...")
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        gateway.proc.wait(END_S)
