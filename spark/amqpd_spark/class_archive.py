"""Java's classes of Spark in one file, with which it starts in two thirds of the time.

What comes in: the file, if `amqpd-spark prepare` has made it. What goes out: where it is, and options for Java.
Rules: 1. It is made only when somebody asks for it, for it takes 180 MB. 2. Java looks itself whether it fits (the
same Java, the same jars); if not, it starts without it and says nothing.
Source: class data sharing of applications (JEP 350: ArchiveClassesAtExit).
Not here: making it (`prepare.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyspark


def place(environment: Mapping[str, str] = os.environ) -> Path:
    """In the folder for what may be deleted at any time."""
    cache = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".cache"
    return Path(cache) / "amqpd" / f"spark-{pyspark.__version__}.jsa"


def used(environment: Mapping[str, str] = os.environ) -> str:
    """Options for Java; empty: there is none."""
    file = place(environment)
    return f'-Xlog:disable "-XX:SharedArchiveFile={file}"' if file.is_file() else ""


def made(file: Path) -> str:
    """Options for a Java that writes it when it ends."""
    return f'-Xlog:disable "-XX:ArchiveClassesAtExit={file}"'
