"""The stand-in for `rabbitmqctl`, loaded once: suites say hundreds of words, and each time loading amqpd's commands
would take most of a second of a processor.

What comes in: as a program, the socket's path and rabbitmqctl's words; there, a line of JSON with the words.
What goes out: what the stand-in printed, and its exit code.
Rules: 1. The program imports nothing of ours: it starts in some milliseconds. 2. Each command has a process of its
own, forked from one without threads, and leaves nothing behind for the next.
Not here: the words (`rabbitmqctl.py`).
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pkgutil
import socket
import socketserver
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

LISTENING = b"listening\n"


class Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    """A process for each command, several at once."""

    request_queue_size = 64
    max_children = 16


class Request(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        from tests.suites import rabbitmqctl

        words = json.loads(self.rfile.readline())
        said, wrong = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
            code = rabbitmqctl.main(words)
        self.wfile.write(json.dumps([code, said.getvalue(), wrong.getvalue()]).encode())


def serve(path: str) -> None:
    """For ever; says on standard output when it listens."""
    from amqpd import commands

    for module in pkgutil.iter_modules(commands.__path__, "amqpd.commands."):
        importlib.import_module(module.name)
    importlib.import_module("tests.suites.rabbitmqctl")
    with Server(path, Request) as server:
        os.write(sys.stdout.fileno(), LISTENING)
        server.serve_forever()


@contextlib.contextmanager
def preloaded(path: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Answers at this socket until the end of the block. Raises RuntimeError when it does not come up."""
    command = [sys.executable, "-m", "tests.suites.preloaded", str(path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != LISTENING:
                raise RuntimeError("the stand-in for rabbitmqctl did not come up")
            yield
        finally:
            process.kill()


def ask(path: str, words: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(json.dumps(words).encode() + b"\n")
        with connection.makefile() as answer:
            code, said, wrong = json.loads(answer.read())
    sys.stdout.write(said)
    sys.stderr.write(wrong)
    return int(code)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
