"""What a node uses, may use and has counted: a row of plain values, for itself and for other nodes of its cluster.

What comes in: the running node, its figures and their samples, where it listens. What goes out: a row.
Rules: sizes are bytes; `amqp` is host, port and whether through TLS, `http` are URLs; `rates` are how much each of
the sampled figures grows in a second; `alarm_rows` says of each alarm who set it, since when, why, and how many
connections it blocks; `directories` are those of several data directories that are not in use.
Not here: RabbitMQ's fields (`admin/amqpd_admin/rows/nodes.py`), metrics (`admin/amqpd_admin/metrics/node.py`).
"""

from __future__ import annotations

import platform
import resource
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import trio

from amqpd import __version__
from amqpd.management import alarms
from amqpd.management.alarms import reason
from amqpd.management.figures import totals
from amqpd.management.figures.samples import Series
from amqpd.management.pacing import each
from amqpd.management.running import Running
from amqpd.node.node import Node
from amqpd.session.ports import ConnectionBase

Row = dict[str, Any]
# Open files are counted one by one, which takes a millisecond for a thousand of them.
PROCESS_S = 1.0


class NodeFacts:
    """Makes the row of what the node of this process uses, may use and has counted."""

    def __init__(
        self,
        on: Running,
        figures: Callable[[], dict[str, Any]],
        series: Series,
        amqp: Sequence[tuple[str, int, bool]],
        http: Sequence[str],
        data_dir: str,
        config_file: Path | None = None,
    ) -> None:
        """`figures`: see `BrokerParts.figures`. `series`: samples of the node. `config_file`: that it was started
        with."""
        self._on = on
        self._figures = figures
        self._series = series
        self._amqp = amqp
        self._http = http
        self._data_dir = data_dir
        self._config_files = [str(config_file)] if config_file else []
        self._begun_s = trio.current_time()
        self._looking = trio.Lock()
        self._process: Row = {}
        self._look_again_s = 0.0
        self.sums = totals.QueueSums(on.node)

    async def row(self) -> Row:
        """The node's figures as they are now."""
        node, figures = self._on.node, self._figures()
        process = await self._of_process()
        return {
            "name": node.identity.name,
            "version": __version__,
            **process,
            "sockets": len(node.connections),
            "run_queue": trio.lowlevel.current_statistics().tasks_runnable,
            "resident_bytes_max": figures["resident_bytes_max"],
            "disk_free_bytes": figures["disk_free_bytes"],
            "disk_free_bytes_min": figures["disk_free_bytes_min"],
            "alarms": alarms.kinds(self._on),
            "alarm_rows": await self._alarm_rows(figures, process.get("resident_bytes", 0)),
            "uptime_s": trio.current_time() - self._begun_s,
            "data_dir": self._data_dir,
            "config_files": list(self._config_files),
            "python": platform.python_version(),
            "openssl": ssl.OPENSSL_VERSION,
            "directories": figures.get("directories", []),
            "draining": node.draining,
            "amqp": [list(address) for address in self._amqp],
            "http": list(self._http),
            "churn": totals.churn(node),
            "gone_queues": dict(totals.of_gone_vhosts(node)),
            "rates": {name: round(self._series.rate(name), 1) for name in self._series.names},
        }

    async def _alarm_rows(self, figures: Row, resident_bytes: int) -> list[Row]:
        """Connections are counted while an alarm is on, and not else."""
        on = self._on.node.alarms.by_source
        blocked = len(await blocked_connections(self._on.node)) if on else 0
        return [
            {**row, "since_ms": round(alarm.since * 1000), "says": reason(alarm, figures, resident_bytes)}
            | {"blocked": blocked}
            for alarm, row in zip(on, alarms.rows(on), strict=True)
        ]

    async def _of_process(self) -> Row:
        """Kept for a moment: a page asks for several things, of which each has it."""
        async with self._looking:
            if trio.current_time() >= self._look_again_s:
                self._process = await trio.to_thread.run_sync(_process)
                self._look_again_s = trio.current_time() + PROCESS_S
            return self._process


async def blocked_connections(node: Node) -> list[ConnectionBase]:
    """Connections that may not publish while an alarm is on, and have tried to."""
    return await each(list(node.connections.values()), lambda one: one if one.intake.blocked else None)


def _process() -> Row:
    """In a thread."""
    process = psutil.Process()
    return {
        "pid": process.pid,
        "files": process.num_fds(),
        "files_max": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "resident_bytes": process.memory_info().rss,
        "context_switches": sum(process.num_ctx_switches()),
        "processors": psutil.cpu_count() or 1,
    }
