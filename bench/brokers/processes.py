"""Processes beside the bench: started in a session of their own and ended with it, or run to their end.

What comes in: commands, and what is added to the environment. What goes out: processes; what a command said.
Rules: 1. a session for each, so that what a shell script started is ended together with it; 2. SIGTERM first, SIGKILL
after a deadline; 3. a command that fails is an error in its own words.
Not here: what is started (`private_amqpd.py`, `private_rabbitmq.py`), the workers (`bench/crew.py`).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from time import sleep
from typing import IO

from bench.clock import now
from bench.errors import BenchError

STOP_SECONDS_MAX = 20.0
WORDS_MAX = 500
"""Characters of what a failed command said last."""


def start_session(
    command: list[str],
    environment: Mapping[str, str] | None = None,
    *,
    output: IO[bytes] | int = subprocess.DEVNULL,
    directory: Path | None = None,
) -> subprocess.Popen[bytes]:
    """`environment` is added to the bench's own; both streams go to `output`."""
    return subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def end_session(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the process group that `process` leads, SIGKILL to what is left after the deadline."""
    group = process.pid  # start_new_session made it the leader of a group with its own id
    for number, wait_s in ((signal.SIGTERM, STOP_SECONDS_MAX), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            break
        deadline = now() + wait_s
        while now() < deadline:
            process.poll()
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                break
            sleep(0.05)
    process.wait()


def said_by(
    command: list[str], environment: Mapping[str, str], *, failure: str, seconds_max: float | None = None
) -> str:
    """What `command` writes to its standard output. Raises BenchError, which begins with `failure`, if it fails."""
    done = completed(command, environment, seconds_max)
    if done.returncode:
        raise BenchError(f"{failure}: {(done.stderr or done.stdout).strip()[-WORDS_MAX:]}")
    return done.stdout.strip()


def completed(
    command: list[str], environment: Mapping[str, str], seconds_max: float | None
) -> subprocess.CompletedProcess[str]:
    """For a command that may fail. Raises BenchError if it takes longer than `seconds_max`."""
    try:
        return subprocess.run(
            command,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{Path(command[0]).name} took more than {seconds_max:g} s") from error


def free_port() -> int:
    """A port that was free a moment ago, on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
