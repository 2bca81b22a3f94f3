"""The broker of a run, stopped and started while its suite runs: what `rabbitmqctl stop_app` and `start_app` ask for.

What comes in: lines of JSON on a socket in the run's scratch folder, from `rabbitmqctl.py`: a verb, and settings.
What goes out: "ok" when it is done, or the reason why not.
Rules: 1. The run itself stops and starts its broker, so its log, its port and its end stay the run's. 2. A setting
that RabbitMQ changes at run time is one that amqpd starts with: `restart` does that.
Not here: RabbitMQ's words (`rabbitmqctl.py`).
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from socket import AF_UNIX, SHUT_WR, socket

from tests.clients.broker_process import BrokerFailed, BrokerProcess

# Stopping and starting have deadlines of their own, each shorter than half of this.
ANSWER_DEADLINE_S = 600.0


class Control(socketserver.UnixStreamServer):
    """One request after the other."""

    broker: BrokerProcess


class Request(socketserver.StreamRequestHandler):
    server: Control

    def handle(self) -> None:
        asked = json.loads(self.rfile.readline())
        try:
            carry_out(self.server.broker, asked["verb"], asked["settings"])
        except (BrokerFailed, AssertionError, OSError) as error:
            self.wfile.write(f"{type(error).__name__}: {error}".encode())
        else:
            self.wfile.write(b"ok")


def carry_out(broker: BrokerProcess, verb: str, settings: Mapping[str, str | None]) -> None:
    """A setting that is None is the default again. Raises BrokerFailed, and AssertionError for a broker that is
    to be started and runs."""
    for name, value in settings.items():
        if value is None:
            broker.environment.pop(name, None)
        else:
            broker.environment[name] = value
    if verb == "stop" and broker.running:
        broker.terminate()
    elif verb == "start":
        broker.start()
    elif verb == "restart":
        broker.restart()


@contextlib.contextmanager
def operated(broker: BrokerProcess, path: Path) -> Iterator[None]:
    """Requests on this socket are carried out until the end of the block."""
    with Control(str(path), Request) as server:
        server.broker = broker
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def ask(path: Path, verb: str, settings: Mapping[str, str | None] | None = None) -> str:
    """From another process: empty when it is done, else why not."""
    with socket(AF_UNIX) as connection:
        connection.settimeout(ANSWER_DEADLINE_S)
        connection.connect(str(path))
        connection.sendall(json.dumps({"verb": verb, "settings": dict(settings or {})}).encode() + b"\n")
        connection.shutdown(SHUT_WR)
        with connection.makefile() as answer:
            said = answer.read()
    return "" if said == "ok" else said or "no answer"
