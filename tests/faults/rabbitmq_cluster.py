"""RabbitMQ in place of several forwarders, with the same interface: how long its quorum queues take to be served
again.

What comes in: a directory; machines, or none. What goes out: nodes by name; which of them leads a queue.
Rules: 1. Each node joins the first one by its configuration, one after the other, so nobody has to choose who is
first. 2. Cookie, port mapper, data and logs are the tests' own; a system service is not touched. 3. Nothing is tuned:
timings are RabbitMQ's defaults. 4. On machines a node is named by its address, so that nobody has to look up a host.
Not here: one node (`tests/clients/rabbitmq_process.py`), what is measured (`takeover_times.py`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pika

from ..clients.rabbitmq_process import SCRIPTS, RabbitMQProcess
from ..harness.namespaces import Machines

COMMAND_S = 60


class RabbitMQNode(RabbitMQProcess):
    """One of several. `host`: its address; `first`: the node that it joins, None if it is that one."""

    def __init__(
        self, data_dir: Path, home: Path, host: str, first: RabbitMQNode | None, prefix: Sequence[str] = ()
    ) -> None:
        super().__init__(data_dir, prefix=prefix)
        self.home, self.host, self.first = home, host, first
        self.node_name = f"{data_dir.name}@{host}"
        if first is not None:
            self._epmd_port = first._epmd_port  # of one machine there is one, and nodes ask each other's at one port
            if host != first.host:
                self._distribution_port = first._distribution_port

    def child_environment(self) -> dict[str, str]:
        if self.first is not None:
            nodes = [self.first.node_name, self.node_name]
            discovery = ["cluster_formation.peer_discovery_backend = classic_config"]
            discovery += [f"cluster_formation.classic_config.nodes.{at} = {name}" for at, name in enumerate(nodes, 1)]
            self.arguments = discovery
        environment = super().child_environment()
        if self.prefix:
            interface = "{" + self.host.replace(".", ",") + "}"
            environment["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"] = f"-kernel inet_dist_use_interface {interface}"
            environment["ERL_EPMD_ADDRESS"] = self.host
        return {
            **environment,
            "HOME": str(self.home),
            "RABBITMQ_NODENAME": self.node_name,
            "RABBITMQ_USE_LONGNAME": "true",
        }

    def rabbitmqctl(self, *words: str) -> tuple[int, str]:
        """A command on this node: its exit code, and what it said."""
        done = subprocess.run(
            [*self.prefix, str(SCRIPTS / "rabbitmqctl"), "-q", "--longnames", "-n", self.node_name, *words],
            env=self.child_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        return done.returncode, done.stdout or done.stderr


class RabbitMQCluster:
    """`machines`: each node on one of its own; None: all on this one."""

    def __init__(self, directory: Path, names: Sequence[str] = "abc", machines: Machines | None = None) -> None:
        self.machines = machines
        home = directory / "home"
        home.mkdir(parents=True)
        self.brokers: dict[str, RabbitMQNode] = {}
        first: RabbitMQNode | None = None
        for name in names:
            host = machines.address(name) if machines is not None else "127.0.0.1"
            prefix = machines.prefix(name) if machines is not None else ()
            self.brokers[name] = RabbitMQNode(directory / name, home, host, first, prefix)
            first = first or self.brokers[name]

    def inside(self, name: str) -> AbstractContextManager[None]:
        """Where 127.0.0.1 is that node's machine, for this thread."""
        return self.machines.inside(name) if self.machines is not None else nullcontext()

    def start(self) -> None:
        for broker in self.brokers.values():
            broker.start()

    def close(self) -> None:
        for broker in reversed(self.brokers.values()):
            broker.close()

    def declare(self, queue: str) -> None:
        """A quorum queue, with a member at each node."""
        name, broker = next(iter(self.brokers.items()))
        with self.inside(name), pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            connection.channel().queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})

    def leader_of(self, queue: str) -> str:
        """The node that leads it, as the members themselves say: what `list_queues` says is late after a cut."""
        broker = next(each for each in self.brokers.values() if each.running)
        member = "{'%2F_" + queue + "', node()}"
        code, said = broker.rabbitmqctl("eval", f"element(3, ra:members({member})).")
        leaders = [name for name, each in self.brokers.items() if each.node_name in said]
        assert code == 0, said
        assert len(leaders) == 1, said
        return leaders[0]

    @property
    def log(self) -> str:
        return "\n".join(f"--- {name}\n{broker.log[-3000:]}" for name, broker in self.brokers.items())
