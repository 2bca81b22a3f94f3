"""A cluster on this machine: three nodes and etcd, until Ctrl-C.

What comes in: the first port, how many nodes. What goes out: a line for each step, addresses, an example.
Rules: 1. Everything runs on loopback, with data in a directory of its own that is removed at the end, if none is
given. 2. A node that ends is said to have ended and started again, as a supervisor would: kill one, and look.
Not here: how a cluster of real machines is set up (docs/clustering.md).
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import FrameType

import trio

from bench.brokers.etcd import etcd_command, etcd_environment

ROOT = Path(__file__).resolve().parents[1]
NAMES = "abcdefg"
NODES_MAX = len(NAMES)
PORT_MAX = 65_535
START_S = 60.0
AGAIN_S = 3.0
EXAMPLE = """
    import pika

    with pika.BlockingConnection(pika.URLParameters("{url}")) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True, arguments={{"x-queue-type": "quorum"}})
        for number in range(10):
            channel.basic_publish("", "orders", b"order %d" % number)  # returns when most of the nodes have it
        print(channel.basic_get("orders", auto_ack=True)[2])
"""
COMMANDS = """\
    .venv/bin/amqpd cluster status
    .venv/bin/amqpd quorum status orders"""


def say(text: str) -> None:
    print(text, flush=True)


class Cluster:
    def __init__(self, directory: Path, first_port: int, first_http_port: int, nodes: int) -> None:
        self.directory = directory
        self.names = NAMES[:nodes]
        self.ports = {name: first_port + at for at, name in enumerate(self.names)}
        self.http_ports = {name: first_http_port + at for at, name in enumerate(self.names)}
        self.links = dict(zip(self.names, free_ports(nodes), strict=True))
        self.etcd_port, self.etcd_peer_port = free_ports(2)

    def url(self, name: str) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.ports[name]}/"

    def etcd_command(self, program: str) -> list[str]:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self.etcd_port, self.etcd_peer_port))
        return etcd_command(program, self.directory / "etcd", client, peer)

    def settings(self, name: str) -> dict[str, str]:
        return {
            "AMQPD_NODE_NAME": name,
            "AMQPD_PORT": str(self.ports[name]),
            "AMQPD_HTTP_PORT": str(self.http_ports[name]),
            "AMQPD_DATA_DIR": str(self.directory / name),
            "AMQPD_CLUSTER_STORE": f"etcd://127.0.0.1:{self.etcd_port}/local",
            "AMQPD_CLUSTER_LISTEN": f"127.0.0.1:{self.links[name]}",
            "AMQPD_CLUSTER_LABEL": name,
            # Nobody between these processes pretends that one of them has ended.
            "AMQPD_FAST_TAKEOVER": "true",
        }

    def exports(self, name: str) -> str:
        """What commands have to know: which cluster, and which of its nodes is asked."""
        settings = self.settings(name)
        names = ("AMQPD_CLUSTER_STORE", "AMQPD_DATA_DIR")
        return f"    export {' '.join(f'{each}={shlex.quote(settings[each])}' for each in names)}\n" + COMMANDS

    async def run(self) -> None:
        program = shutil.which("etcd")
        if program is None:
            raise SystemExit("etcd is not installed: apt-get install etcd-server, or put etcd into PATH")
        for port in (*self.ports.values(), *self.http_ports.values()):
            refuse_taken(port)
        async with trio.open_nursery() as nursery:
            self._end_with_signals(nursery)
            say("etcd starts")
            nursery.start_soon(self._etcd, program)
            await self._etcd_serves()
            say(f"etcd serves at 127.0.0.1:{self.etcd_port}")
            for name in self.names:
                await nursery.start(self._node, name)
            say(f"\nThe cluster runs; Ctrl-C ends it. Try this:\n{EXAMPLE.format(url=self.url(self.names[0]))}")
            say(f"Look at it in another terminal:\n\n{self.exports(self.names[0])}\n")
            say("Then kill the node that has the queue, and ask the others for it.\n")

    def _end_with_signals(self, nursery: trio.Nursery) -> None:
        """A second Ctrl-C does not end this process before the others have ended."""
        token = trio.lowlevel.current_trio_token()

        def end(number: int, frame: FrameType | None) -> None:
            token.run_sync_soon(nursery.cancel_scope.cancel)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)

    async def _etcd(self, program: str) -> None:
        process = await trio.run_process(
            self.etcd_command(program), env=etcd_environment(), check=False, start_new_session=True
        )
        raise SystemExit(f"etcd has ended with code {process.returncode}")

    async def _etcd_serves(self) -> None:
        health = f"http://127.0.0.1:{self.etcd_port}/health"

        def ask() -> bool:
            with suppress(OSError), urllib.request.urlopen(health, timeout=1) as answer:
                return b"true" in answer.read()
            return False

        with trio.fail_after(START_S):
            while not await trio.to_thread.run_sync(ask):  # noqa: ASYNC110 - nobody tells of it
                await trio.sleep(0.1)

    async def _node(self, name: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Started again each time that it ends."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("AMQPD_")}
        environment |= self.settings(name) | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'admin'}"}
        log = self.directory / f"{name}.log"
        started = False
        while True:
            with log.open("ab") as output:
                process = await trio.lowlevel.open_process(
                    [sys.executable, "-m", "amqpd", "serve"],
                    env=environment,
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            try:
                await self._ready(name, process)
                pages = f"http://127.0.0.1:{self.http_ports[name]}/"
                say(f"{name} serves: {self.url(name)}  pages {pages}  (process {process.pid}, log {log})")
                if not started:
                    started = True
                    task_status.started()
                code = await process.wait()
                say(f"{name} has ended with code {code}, the others go on; it starts again in {AGAIN_S:g} s")
                await trio.sleep(AGAIN_S)
            finally:
                if process.returncode is None:
                    process.terminate()
                    with trio.move_on_after(10) as waiting:
                        waiting.shield = True
                        await process.wait()
                    if process.returncode is None:
                        process.kill()

    async def _ready(self, name: str, process: trio.Process) -> None:
        with trio.move_on_after(START_S) as waiting:
            while process.returncode is None:
                with suppress(OSError):
                    await (await trio.open_tcp_stream("127.0.0.1", self.ports[name])).aclose()
                    return
                await trio.sleep(0.1)
        said = (self.directory / f"{name}.log").read_text(errors="replace").splitlines()[-5:]
        why = "did not get ready" if waiting.cancelled_caught else f"has ended with code {process.returncode}"
        raise SystemExit(f"{name} {why}; the end of its log:\n" + "\n".join(said))


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def refuse_taken(port: int) -> None:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        other = "ARGS='--port 5682 --http-port 15682'"
        raise SystemExit(f"port {port} is taken ({error.strerror}): name others with {other}") from error


def port_number(text: str) -> int:
    """With those of all nodes behind it."""
    number = int(text)
    if not 1 <= number <= PORT_MAX - NODES_MAX + 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and {PORT_MAX - NODES_MAX + 1}")
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--port", type=port_number, default=5672, help="of the first node; the others' follow it (5672)"
    )
    parser.add_argument(
        "--http-port",
        type=port_number,
        default=15672,
        help="of the first one's pages and API; as with --port (15672)",
    )
    parser.add_argument("--nodes", type=int, default=3, choices=range(1, NODES_MAX + 1), help="how many (3)")
    parser.add_argument("--directory", type=Path, help="where to keep data and logs; without it they are removed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="amqpd-cluster-") as temporary:
        directory = given.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        failures: list[BaseException] = []
        try:
            trio.run(Cluster(directory, given.port, given.http_port, given.nodes).run)
        except* SystemExit as group:
            failures = [*group.exceptions]
        while failures and isinstance(failures[0], BaseExceptionGroup):
            failures = [*failures[0].exceptions]
        if failures:
            print(f"make cluster: {failures[0]}", file=sys.stderr)
            raise SystemExit(1)


if __name__ == "__main__":
    main()
