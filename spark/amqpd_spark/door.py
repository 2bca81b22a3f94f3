"""The one way out of the program: an exit code, and one sentence where it did not do what was asked.

What comes in: a function, or click's commands. What goes out: 0 done; 1 only where a job returns it: something is
missing or wrong in the books; 2 for everything else, with a sentence on stderr that names the file or the setting;
130 after Ctrl-C.
Rules: 1. No traceback, unless AMQPD_SPARK_DEBUG is set. 2. PySpark is not imported: it may not be installed.
Not here: what a job finds, and which of that is 1 (the jobs).
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

import click

DONE, FAULTS, NOT_DONE, INTERRUPTED = 0, 1, 2, 130
DEBUG = "AMQPD_SPARK_DEBUG"
SENTENCE_MAX = 400
"""characters of what others say; Spark's own words may be pages"""

_FILE = re.compile(r"((?:[a-z][a-z0-9]*:)?/[^\s'\"]*\.parquet)")
_CAUSE = re.compile(r"(?:^|Caused by: )(?:[\w$]+\.)+([\w$]+(?:Exception|Error)): ([^\n]+)", re.MULTILINE)
_OUT_OF_MEMORY = "Java had too little memory: give more with --memory, as --memory 3g"


class Refused(Exception):
    """What was asked for is not done; one sentence, which names the file or the setting."""


def through(function: Callable[[], Any]) -> int:
    """The exit code; what is to be said has been said."""
    try:
        return int(function() or DONE)
    except SystemExit as error:
        if isinstance(error.__context__, OSError) and error.__context__.errno == errno.EPIPE:
            return DONE
        return error.code if isinstance(error.code, int) else DONE if error.code is None else NOT_DONE
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever reads the output has seen enough; at the end Python would write the rest of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:  # noqa: BLE001 - said in one sentence, whatever it is: that is what a door is for
        if os.environ.get(DEBUG):
            traceback.print_exc()
        click.echo(f"amqpd-spark: {sentence(error)}", err=True)
        return NOT_DONE


def sentence(error: BaseException) -> str:
    """What went wrong, in one line."""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return _line(f"{error.format_message()} ({error.ctx.command_path} --help)")
    if isinstance(error, click.ClickException):
        return _line(error.format_message())
    if isinstance(error, Refused):
        return _line(str(error))
    if isinstance(error, ModuleNotFoundError):
        needed = f"the module {error.name}, which is not installed"
        return f"this job needs {needed}: pip install '.[spark]' in a checkout of amqpd"
    if isinstance(error, OSError) and error.strerror:
        return _line(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    return _of_spark(error) or _unforeseen(error)


def _of_spark(error: BaseException) -> str:
    """Empty: it is none of Spark's that are known."""
    where = type(error).__module__.partition(".")[0]
    if where not in ("pyspark", "py4j"):
        return ""
    said = _said(error)
    if "OutOfMemoryError" in said:
        return _OUT_OF_MEMORY
    if type(error).__name__ == "Py4JNetworkError" or "Answer from Java side is empty" in said:
        return "Spark's Java ended before the job did; if it had too little memory: --memory 3g"
    if (lacking := re.search(r"No module named '(numpy|pandas|pyarrow)'", said)) is not None:
        return f"the Python of Spark's tasks has no {lacking[1]}: install it there, or name another in PYSPARK_PYTHON"
    condition = getattr(error, "getCondition", lambda: None)() or ""
    if condition == "JAVA_GATEWAY_EXITED":
        return "Java did not start: look at --memory and --master, and at what it says above"
    if condition == "PATH_NOT_FOUND":
        path = (error.getMessageParameters() or {}).get("path", "?")  # type: ignore[attr-defined]
        return f"there is no folder {path}"
    if (refused := re.search(r"(?:NotOurs|Refused): ([^\n]+)", said)) is not None:
        return _line(refused[1])
    causes = _CAUSE.findall(said)
    kind, why = causes[-1] if causes else (condition or type(error).__name__, said)
    why = why if why.strip(" []_ABCDEFGHIJKLMNOPQRSTUVWXYZ") else said
    # In a stream's batch it is within another error.
    at = said.find("[FAILED_READ_FILE")
    if at >= 0 or condition.startswith(("FAILED_READ_FILE", "CANNOT_READ_FILE")) or "is not a Parquet file" in said:
        file = _FILE.search(said, max(at, 0))
        return _line(f"{file[1] if file else 'a file of the log'} cannot be read: {why}")
    if "Could not parse Master URL" in said or ("SparkContext" in said and "Master" in said):
        return _line(f"--master is of no use: {why}")
    return _line(f"Spark gave up: {kind}: {why}; {DEBUG}=1 shows where")


def _said(error: BaseException) -> str:
    """With the stack trace of Java, where there is one."""
    words = str(error)
    java = getattr(error, "java_exception", None)
    return words if java is None else f"{words}\n{java}"


def _unforeseen(error: BaseException) -> str:
    words = str(error).strip().partition("\n")[0]
    return _line(f"the job failed: {type(error).__name__}: {words}; {DEBUG}=1 shows where")


def _line(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= SENTENCE_MAX else f"{line[:SENTENCE_MAX]} ..."


class _Door:
    """Of click's commands: their own way out is not taken."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        run: Any = super().main  # type: ignore[misc]
        if not standalone_mode:
            return run(*args, standalone_mode=False, **extra)
        sys.exit(through(lambda: run(*args, standalone_mode=False, **extra)))


class Command(_Door, click.Command):
    """A job, called by itself."""


class Group(_Door, click.Group):
    """The group of the jobs of amqpd-spark, as commands of click."""
