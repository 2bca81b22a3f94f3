"""Tries an amqpd that is installed: `python scripts/try_installed.py [--kernel K]`, with the Python that has it.

What comes in: an environment with amqpd and pika, and this checkout's README. What goes out: exit code 0 when the
version, the kernel, a broker's start, the README's program, `amqpd status`, an orderly stop and a second start were
right.
Rules: 1. Nothing of the checkout is imported: the installed files are what is tried. 2. Ports are the system's
choice, data is in a folder that is removed.
Not here: building (`.github/workflows/release.yml`).
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
START_S = 60
"""for a start on a busy machine; a start takes one or two"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Try an installed amqpd.")
    parser.add_argument("--kernel", choices=("cython", "python"), help="the kernel that it has to have")
    wanted = parser.parse_args().kernel
    with tempfile.TemporaryDirectory() as folder:
        said = amqpd(folder, "--version")
        if wanted and f"kernel: {wanted}" not in said:
            sys.exit(f"it has not the kernel {wanted}: {said}")
        with broker(folder) as port:
            print(run([sys.executable, "-c", program(port)], folder).strip())
            print(amqpd(folder, "status").splitlines()[0])
        with broker(folder):
            if "hello" not in amqpd(folder, "queue", "list"):
                sys.exit("the durable queue of the README's program is not there after a restart")
    print(said.strip(), "works")


def program(port: int) -> str:
    [text] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    return str(text).replace("localhost:5672", f"127.0.0.1:{port}")


@contextmanager
def broker(folder: str) -> Iterator[int]:
    """A broker that runs, by its port; at the end it has to stop in order."""
    flags = ["--port", "0", "--bind", "127.0.0.1", "--data-dir", f"{folder}/data"]
    process = subprocess.Popen(
        [command(), "serve", *flags], cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True
    )
    signal.alarm(START_S)  # a start that says nothing ends this program
    assert process.stderr is not None
    ready = next((line for line in process.stderr if "event=READY" in line), None)
    signal.alarm(0)
    found = re.search(r"127\.0\.0\.1:(\d+)", ready or "")
    if found is None:
        process.kill()
        sys.exit(f"no broker started: {ready}")
    try:
        yield int(found[1])
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=START_S)
    if process.returncode:
        sys.exit(f"the broker ended with {process.returncode}")


def amqpd(folder: str, *arguments: str) -> str:
    given = [] if arguments == ("--version",) else ["--data-dir", f"{folder}/data"]
    return run([command(), *given, *arguments], folder)


def run(words: list[str], folder: str) -> str:
    done = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words[:3])} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def command() -> str:
    return str(Path(sys.executable).parent / "amqpd")


def environment() -> dict[str, str]:
    """This one, without what would import the checkout; the pages have a port of the system's choice."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "AMQPD_KERNEL")}
    return {**kept, "AMQPD_HTTP_PORT": "0"}


if __name__ == "__main__":
    main()
