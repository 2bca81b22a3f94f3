"""Is there a Java that Spark can run on?

What comes in: the environment. What goes out: nothing, or `NoJava` with one sentence.
Rules: asked before the JVM is started, whose own words for it are a page of stack traces.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

JAVA_MIN = 17
"""of Spark 4 (https://spark.apache.org/docs/latest/, "Downloading")"""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_WAY_OUT = f"install Java {JAVA_MIN} or newer (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"


class NoJava(Exception):
    """One sentence with the way out."""


def require_java(environment: Mapping[str, str] = os.environ) -> int:
    """The version of the Java that Spark would start. Raises NoJava when there is none, or one too old."""
    home = environment.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    if found is None:
        raise NoJava(f"Spark needs Java, and there is none on the PATH: {_WAY_OUT}")
    try:
        said = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise NoJava(f"Spark needs Java, and {found} does not run ({error}): {_WAY_OUT}") from error
    version = _VERSION.search(said)
    if version is None:
        raise NoJava(f"Spark needs Java {JAVA_MIN} or newer, and {found} does not say its version: {_WAY_OUT}")
    if int(version[1]) < JAVA_MIN:
        raise NoJava(f"Spark needs Java {JAVA_MIN} or newer, and {found} is Java {version[1]}: {_WAY_OUT}")
    return int(version[1])
