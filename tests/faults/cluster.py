"""Several forwarders and an etcd of their own, as processes on this machine.

What comes in: a directory. What goes out: brokers by name; which of them is the leader of a queue.
Rules: 1. Each forwarder has its own data and its own ports, the same over its restarts. 2. Where a queue is, is asked
of the brokers, as a client would. 3. With `power`, each forwarder's data are on a disk of its own whose power can be
cut.
Not here: what is done to them (`test_cluster_kill.py`).
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pika
from pamqp import commands
from pika.exceptions import AMQPError

from ..clients.broker_process import BrokerProcess
from ..clients.wire import ClosedByBroker, Wire
from ..harness.etcd import free_ports, members, start_all
from ..harness.namespaces import HERE, Machines
from .power import PowerDisk

SECRET = "of the clusters of these tests"
FOUND_DEADLINE_S = 120.0
DECLARED_DEADLINE_S = 120.0
BETWEEN_QUESTIONS_S = 0.02


class Cluster:
    """`machines`: each forwarder on one of its own, etcd and the caller on `HERE`; None: all on this one. `etcds`:
    members of etcd's cluster."""

    def __init__(
        self,
        directory: Path,
        names: Sequence[str] = "abc",
        environment: dict[str, str] | None = None,
        machines: Machines | None = None,
        *,
        etcds: int = 1,
        power: bool = False,
    ) -> None:
        self.machines = machines
        self.etcds = members(directory / "etcd", etcds, self._address(HERE))
        self.etcd = self.etcds[0]
        self._disks_of = {name: directory / f"power-{name}" for name in names if power}
        self.disks: dict[str, PowerDisk] = {}
        """by forwarder, with `power`, from the start on"""
        store = ",".join(etcd.endpoint for etcd in self.etcds)
        self.links = links = dict(zip(names, free_ports(len(names)), strict=True))
        """the ports where nodes listen for each other"""
        self.brokers = {
            name: BrokerProcess(
                directory / f"power-{name}" / "disk" / "data" if power else directory / name,
                environment={
                    "AMQPD_NODE_NAME": name,
                    "AMQPD_CLUSTER_STORE": f"etcd://{store}/test",
                    "AMQPD_CLUSTER_LISTEN": f"{self._address(name)}:{links[name]}",
                    "AMQPD_CLUSTER_SECRET": SECRET,
                    "AMQPD_CLUSTER_LABEL": name,
                    **(environment or {}),
                },
                prefix=machines.prefix(name) if machines is not None else (),
            )
            for name in names
        }

    def _address(self, name: str) -> str:
        return self.machines.address(name) if self.machines is not None else "127.0.0.1"

    def inside(self, name: str) -> AbstractContextManager[None]:
        """Where 127.0.0.1 is that forwarder's machine, for this thread."""
        return self.machines.inside(name) if self.machines is not None else nullcontext()

    def start(self) -> None:
        """Returns when all serve. Raises NoPowerDisk where the disks cannot be made."""
        for name, folder in self._disks_of.items():
            folder.mkdir()
            self.disks[name] = PowerDisk(folder)
        start_all(self.etcds)
        for broker in self.brokers.values():
            broker.spawn()
        for broker in self.brokers.values():
            broker.wait_ready()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()
        for etcd in self.etcds:
            etcd.stop()
        for disk in self.disks.values():
            disk.close()
            disk.image.unlink()

    def declare_quorum(self, name: str, queues: Collection[str], bound: Collection[str] = ()) -> None:
        """Quorum queues, at this forwarder, or at another one where their leader is; `bound`: to the exchange
        `everyone`. On a slow machine members may find each other later than a declaration waits for that: it is
        refused then, and repeated."""
        deadline_s, refused = time.monotonic() + DECLARED_DEADLINE_S, ""
        for at in itertools.cycle({name: 0, **self.brokers}):
            assert time.monotonic() < deadline_s, f"{sorted(queues)} cannot be declared: {refused}"
            try:
                with self.inside(at):
                    _declare(self.brokers[at].url, queues, bound, {"x-queue-type": "quorum"})
                return
            except AMQPError as error:
                refused = f"{at}: {error!r}"
            time.sleep(BETWEEN_QUESTIONS_S)

    def declare_classic(self, name: str, queues: Collection[str], bound: Collection[str] = ()) -> None:
        """Durable classic queues of this forwarder, as `declare_quorum`."""
        with self.inside(name):
            _declare(self.brokers[name].url, queues, bound, {})

    def status(self) -> dict[str, Any]:
        """`amqpd cluster status`: members and sources, as the store has them."""
        broker = next(iter(self.brokers.values()))
        done = subprocess.run(
            [sys.executable, "-m", "amqpd", "cluster", "status", "--json"],
            env=broker.child_environment(),
            cwd=broker.checkout,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def leader_of(self, queues: Collection[str]) -> str:
        """The forwarder at which all of these queues can be used; waited for."""
        deadline = time.monotonic() + FOUND_DEADLINE_S
        while time.monotonic() < deadline:
            for name, broker in self.brokers.items():
                if broker.running:
                    with self.inside(name):
                        if serves(broker.port, queues):
                            return name
            time.sleep(BETWEEN_QUESTIONS_S)  # nobody tells a client that a leader has moved
        raise AssertionError(f"no forwarder serves {sorted(queues)}:\n{self.log}")

    @property
    def log(self) -> str:
        return "\n".join(f"--- {name}\n{broker.log[-3000:]}" for name, broker in self.brokers.items())


def _declare(url: str, queues: Collection[str], bound: Collection[str], arguments: dict[str, Any]) -> None:
    """Raises AMQPError."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("everyone", "fanout", durable=True)
        for queue in queues:
            channel.queue_declare(queue, durable=True, arguments=arguments)
        for queue in bound:
            channel.queue_bind(queue, "everyone")


def serves(port: int, queues: Collection[str]) -> bool:
    """All of these can be used here."""
    try:
        with Wire(port) as wire:
            wire.open()
            wire.open_channel()
            found = True
            for queue in queues:
                answer: object = wire.call(commands.Queue.Declare(queue=queue, passive=True), channel=1)
                if not isinstance(answer, commands.Queue.DeclareOk):
                    found = False  # the channel is closed
                    break
            wire.close()
            return found
    except (ClosedByBroker, OSError):
        return False
