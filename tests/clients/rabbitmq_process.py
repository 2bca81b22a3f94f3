"""RabbitMQ in place of amqpd, with the same interface: what RabbitMQ passes proves the test.

What comes in and goes out: as in `broker_process.py`.
Rules: 1. Everything of the node (database, logs, cookie, port mapper) is under the data directory or on
loopback; an installed system service is not touched. 2. Only what Debian's `rabbitmq-server` package
brings is used.
Not here: which broker a test run uses (`conftest.py`).
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path

import psutil

from . import address
from .broker_process import BrokerProcess, free_port

SCRIPTS = Path("/usr/lib/rabbitmq/bin")
NODE_NAME = "amqpd-tests@localhost"
# Exchange types that amqpd has built in; Debian's package brings all of them.
PLUGINS = (
    "rabbitmq_consistent_hash_exchange",
    "rabbitmq_random_exchange",
    "rabbitmq_recent_history_exchange",
    "rabbitmq_sharding",
)
# By default a dead letter that at-least-once could not deliver is tried again after three minutes.
ADVANCED = "[{rabbit, [{dead_letter_worker_publisher_confirm_timeout, 500}]}].\n"


class RabbitMQProcess(BrokerProcess):
    """A RabbitMQ node with the plugins for exchange types and no others; needs no root and no service."""

    product = "RabbitMQ"
    ready = re.compile(r"Starting broker\.\.\. completed")

    def __init__(self, data_dir: Path, **options: object) -> None:
        super().__init__(data_dir, **options)  # type: ignore[arg-type]
        self._distribution_port = free_port()
        self._epmd_port = free_port()

    def command(self) -> list[str]:
        return [*self.prefix, str(SCRIPTS / "rabbitmq-server")]

    def child_environment(self) -> dict[str, str]:
        base = self.data_dir / "rabbitmq"
        home = base / "home"
        home.mkdir(parents=True, exist_ok=True)
        plugins = base / "enabled_plugins"
        plugins.write_text(f"[{','.join(PLUGINS)}].\n")
        (base / "advanced.config").write_text(ADVANCED)
        # Debian's default refuses connections when less than 50 MB of the disk are free; tests with a small
        # file system set their own limit.
        (base / "rabbitmq.conf").write_text("\n".join(["heartbeat = 60", *self.arguments, ""]))
        return {
            **os.environ,
            "HOME": str(home),
            "RABBITMQ_NODENAME": NODE_NAME,
            "RABBITMQ_NODE_IP_ADDRESS": address.client_host(),
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_MNESIA_BASE": str(base / "mnesia"),
            "RABBITMQ_LOG_BASE": str(base / "log"),
            "RABBITMQ_PID_FILE": str(base / "pid"),
            "RABBITMQ_CONFIG_FILE": str(base / "rabbitmq"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(base / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            **self.environment,
        }

    @property
    def broker_pid(self) -> int:
        """The Erlang machine, below the start script."""
        assert self._process is not None
        below = psutil.Process(self._process.pid).children(recursive=True)
        return next((int(child.pid) for child in below if child.name() == "beam.smp"), self._process.pid)

    def rabbitmqctl(self, *words: str) -> tuple[int, str]:
        """A command on this node: its exit code, and what it said."""
        done = subprocess.run(
            [str(SCRIPTS / "rabbitmqctl"), "-n", NODE_NAME, *words],
            env=self.child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout

    def kill(self) -> None:
        super().kill()
        # The port mapper daemon has left the process group. It refuses to go while a node is registered, so
        # this takes only our own.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [*self.prefix, "epmd", "-port", str(self._epmd_port), "-kill"],
                env={**os.environ, "ERL_EPMD_ADDRESS": "127.0.0.1"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=10,
                check=False,
            )
