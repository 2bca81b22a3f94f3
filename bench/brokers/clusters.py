"""Clusters of three brokers on this machine: the first one is measured, the others keep copies of its queues.

What comes in: nothing. What goes out: `PrivateBroker`s whose address is that of the first of three. Rules: 1. the
others have directories and ports of their own inside its directory; 2. it is ready when all three are in the cluster,
so that a quorum queue has three copies from its first message on; 3. amqpd's etcd is Debian's, private, on loopback.
Not here: one broker alone (`private_amqpd.py`, `private_rabbitmq.py`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from time import sleep

from bench.brokers.base import RETRY_SECONDS, START_SECONDS_MAX, Broker
from bench.brokers.etcd import etcd_command
from bench.brokers.private_amqpd import PrivateAmqpd
from bench.brokers.private_rabbitmq import PrivateRabbitmq
from bench.brokers.processes import completed, end_session, free_port, start_session
from bench.clock import now
from bench.errors import BenchError

OTHERS = ("b", "c")
BUSY_WAIT_OFF = {"AMQPD_BUSY_WAIT_US": "0"}
"""Three forwarders that stay awake after a message would take two cores from each other."""


class AmqpdCluster(PrivateAmqpd):
    """Three forwarders and etcd."""

    def another(self) -> AmqpdCluster:
        return AmqpdCluster(self._work_dir, kernel=self._kernel, name=self.name, audit=self._audit)

    def prepare(self) -> None:
        super().prepare()
        program = shutil.which("etcd")
        if program is None:
            raise BenchError("etcd is not installed: apt-get install etcd-server")
        self._beside: list[subprocess.Popen[bytes]] = []
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._etcd = client.removeprefix("http://")
        self._links = {name: free_port() for name in ("a", *OTHERS)}
        command = etcd_command(program, self.directory / "etcd", client, peer)
        self._beside.append(start_session(command))
        wait_until(lambda: is_healthy(client), "etcd")
        for name in OTHERS:
            where = ["--port", str(free_port()), "--data-dir", str(self.directory / name)]
            command = [*super().command()[:4], *where]
            with (self.directory / f"output-{name}").open("ab") as output:
                self._beside.append(start_session(command, self._settings(name), output=output))

    def environment(self) -> dict[str, str]:
        return self._settings("a") if hasattr(self, "_links") else super().environment()

    def _settings(self, name: str) -> dict[str, str]:
        return {
            **super().environment(),
            **BUSY_WAIT_OFF,
            "AMQPD_NODE_NAME": name,
            "AMQPD_CLUSTER_STORE": f"etcd://{self._etcd}/bench",
            "AMQPD_CLUSTER_LISTEN": f"127.0.0.1:{self._links[name]}",
            "AMQPD_CLUSTER_LABEL": name,
        }

    def _wait_until_it_accepts(self) -> Broker:
        broker = super()._wait_until_it_accepts()
        for name in OTHERS:
            output = self.directory / f"output-{name}"
            wait_until(lambda output=output: b"READY" in output.read_bytes(), name)  # type: ignore[misc]
        return broker

    def clean(self) -> None:
        for process in reversed(getattr(self, "_beside", [])):
            end_session(process)
        super().clean()


class RabbitmqCluster(PrivateRabbitmq):
    """Three nodes that know each other by their configuration."""

    def another(self) -> RabbitmqCluster:
        return RabbitmqCluster(self._script, self._work_dir)

    def prepare(self) -> None:
        super().prepare()
        self._beside: list[subprocess.Popen[bytes]] = []

    def _wait_until_it_accepts(self) -> Broker:
        """The others join one that runs, one after the other: nobody has to choose who is first."""
        broker = super()._wait_until_it_accepts()
        first = f"bench{self.port}@localhost"
        for at, name in enumerate(OTHERS, 2):
            directory = self.directory / name
            directory.mkdir()
            discovery = "cluster_formation.peer_discovery_backend = classic_config\n"
            discovery += f"cluster_formation.classic_config.nodes.1 = {first}\n"
            port = free_port()
            discovery += f"cluster_formation.classic_config.nodes.2 = bench{port}@localhost\n"
            (directory / "rabbitmq.conf").write_text(discovery)
            environment = {
                **self.environment(),
                "RABBITMQ_NODENAME": f"bench{port}@localhost",
                "RABBITMQ_NODE_PORT": str(port),
                "RABBITMQ_DIST_PORT": str(free_port()),
                "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
                "RABBITMQ_LOG_BASE": str(directory / "log"),
                "RABBITMQ_PID_FILE": str(directory / "pid"),
                "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            }
            with (directory / "output").open("ab") as output:
                self._beside.append(start_session(self.command(), environment, output=output))
            wait_until(lambda at=at: self._running() == at, f"RabbitMQ's node {name}")  # type: ignore[misc]
        return broker

    def _running(self) -> int:
        """How many nodes the first one says that run."""
        script = str(Path(self._script).with_name("rabbitmqctl"))
        command = [script, "-n", f"bench{self.port}@localhost", "cluster_status", "--formatter", "json"]
        done = completed(command, self.environment(), START_SECONDS_MAX)
        return len(json.loads(done.stdout)["running_nodes"]) if done.returncode == 0 else 0

    def clean(self) -> None:
        for process in reversed(getattr(self, "_beside", [])):
            end_session(process)
        super().clean()


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Raises BenchError."""
    deadline = now() + START_SECONDS_MAX
    while not is_so():
        if now() > deadline:
            raise BenchError(f"{what} is not there after {START_SECONDS_MAX:g} s")
        sleep(RETRY_SECONDS)


def is_healthy(client: str) -> bool:
    """Whether the etcd there answers."""
    try:
        with urllib.request.urlopen(f"{client}/health", timeout=1) as answer:
            return b"true" in answer.read()
    except OSError:
        return False
