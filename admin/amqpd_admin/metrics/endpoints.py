"""Which families are where: `/metrics`, `/metrics/per-object`, `/metrics/detailed`.

What comes in: the running broker; what is asked for. What goes out: families with their rows, one after the other.
Rules: 1. `/metrics` has sums, `/metrics/per-object` a sample for each thing in their place. 2. `/metrics/detailed`
has what is asked for by `family`, under names that begin with `rabbitmq_detailed_`, so that both can be scraped
together; without it only what the node is. A family or a virtual host that nobody knows is none, as in RabbitMQ. 3.
What all three have: which node it is.
Not here: who may ask, and the answer (`routes/metrics.py`).

Source: https://www.rabbitmq.com/docs/prometheus#metric-aggregation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace

from amqpd.config import Settings
from amqpd.management.face import BrokerParts
from amqpd_admin.metrics import channels, churn, exchanges, messages, node, ours, queues
from amqpd_admin.metrics.families import Part
from amqpd_admin.metrics.node_sums import NodeSums, sum_up

OURS = "amqpd_"
RABBITMQ = "rabbitmq_"
DETAILED = "rabbitmq_detailed_"
OURS_DETAILED = "amqpd_detailed_"

SUMMED = (queues.COARSE, queues.METRICS, queues.DELIVERY, queues.PUBLISHED)
EACH_QUEUE = (*SUMMED, queues.OURS)
EACH_CONNECTION = (channels.BYTES, channels.SHAPE, channels.CHANNELS)


@dataclass(frozen=True)
class Asked:
    """The query of a scrape of `/metrics/detailed`: families, virtual hosts, queues."""

    families: tuple[str, ...] = ()
    vhosts: tuple[str, ...] | None = None
    """None: all"""
    queue: Callable[[str], bool] = field(default=lambda name: True)

    def wants_vhost(self, vhost: str) -> bool:
        return self.vhosts is None or vhost in self.vhosts

    def wants_queue(self, vhost: str, name: str) -> bool:
        return self.wants_vhost(vhost) and self.queue(name)


@dataclass(frozen=True)
class Broker:
    """The running broker, as the three endpoints of metrics ask it."""

    parts: BrokerParts
    settings: Settings
    uptime_s: float

    def _common(self, endpoint: str, sums: NodeSums) -> Iterable[Part]:
        """Of the node, in both `/metrics` and `/metrics/per-object`."""
        parts, running = self.parts, self.parts.on.node
        yield from node.identity(parts, self.settings, endpoint)
        yield from node.process(parts, self.uptime_s)
        yield from node.alarms(parts)
        yield from churn.totals(running)
        yield churn.consumers(sums)
        yield from churn.churn(running)
        yield from messages.messages(running, sums)
        yield ours.kernel()
        yield from ours.queues(running, sums)
        yield from ours.broker(running, parts.figures())

    async def aggregated(self) -> AsyncIterator[Part]:
        running = self.parts.on.node
        sums = await sum_up(running)
        for part in self._common("aggregated", sums):
            yield part
        for part in (*churn.traffic(sums), *channels.totals(running, sums), *queues.totals(sums, SUMMED)):
            yield part

    async def per_object(self) -> AsyncIterator[Part]:
        running = self.parts.on.node
        for part in self._common("per-object", await sum_up(running)):
            yield part
        for part in await queues.each_queue(running, EACH_QUEUE, lambda vhost, name: True, RABBITMQ, OURS):
            yield part
        for part in await channels.each_of_them(running, EACH_CONNECTION, RABBITMQ):
            yield part
        for part in exchanges.each_of_them(running, (exchanges.UNROUTABLE,), lambda vhost: True, RABBITMQ):
            yield part

    async def detailed(self, asked: Asked) -> AsyncIterator[Part]:
        running = self.parts.on.node
        for part in node.identity(self.parts, self.settings, "detailed"):
            yield part
        if "connection_churn_metrics" in asked.families:
            for family, rows in churn.churn(running):
                yield replace(family, name=DETAILED + family.name.removeprefix(RABBITMQ)), rows
        if any(group in asked.families for group in (*queues.GROUPS, queues.TIMES, queues.LEAVING)):
            found = await queues.each_queue(running, asked.families, asked.wants_queue, DETAILED, OURS_DETAILED)
            for part in found:
                yield part
        for part in await channels.each_of_them(running, asked.families, DETAILED):
            yield part
        for part in exchanges.each_of_them(running, asked.families, asked.wants_vhost, DETAILED):
            yield part
