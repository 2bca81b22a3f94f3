"""The archive of Java's classes: where it is, that Java starts with it, and that nothing depends on it.

What is verified: the options with and without a file; `amqpd-spark prepare` makes one that a Java of later jobs has
open; a file that is none is passed over. How much quicker it is, is measured by hand.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amqpd_spark import class_archive

STARTED = """
import sys
from pyspark import SparkContext
from amqpd_spark.session import start
spark = start("test", "local[1]")
assert spark.range(5).count() == 5
java = SparkContext._gateway.proc.pid
print("archived" if "/amqpd/spark-" in open(f"/proc/{java}/maps").read() else "plain")
"""


def test_it_is_in_the_cache_of_the_user(tmp_path: Path):
    name = class_archive.place({}).name
    assert class_archive.place({"XDG_CACHE_HOME": "/c"}) == Path("/c/amqpd") / name
    assert class_archive.place({"HOME": "/h"}) == Path("/h/.cache/amqpd") / name
    assert class_archive.place({"HOME": "/h", "XDG_CACHE_HOME": ""}) == Path("/h/.cache/amqpd") / name


def test_java_is_told_of_it_when_it_is_there(tmp_path: Path):
    environment = {"XDG_CACHE_HOME": str(tmp_path / "a cache")}
    assert class_archive.used(environment) == ""
    file = class_archive.place(environment)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"")
    assert class_archive.used(environment) == f'-Xlog:disable "-XX:SharedArchiveFile={file}"'


def started(cache: Path) -> str:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", STARTED], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.slow
def test_a_file_that_is_none_is_passed_over(tmp_path: Path):
    file = class_archive.place({"XDG_CACHE_HOME": str(tmp_path)})
    file.parent.mkdir()
    file.write_bytes(b"no archive")
    assert started(tmp_path) == "plain"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_java_starts_with_what_prepare_made(tmp_path: Path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "amqpd_spark", "prepare"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    file = class_archive.place(environment)
    assert done.stdout.splitlines()[-1].startswith(f"{file}: ")
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    assert started(tmp_path) == "archived"
