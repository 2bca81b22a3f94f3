"""Events of amqpd against those of Debian's RabbitMQ with its plugin: for the same acts the same routing keys, and
for each the same headers with the same types and, where they are not a broker's own, the same values."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika.exceptions
import pytest

from tests.admin import both_brokers
from tests.admin.both_brokers import Side
from tests.admin.event_acts import ACTS, Act, Doer

PLUGIN = "rabbitmq_event_exchange"
MISSING = both_brokers.missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

EXCHANGE = "amq.rabbitmq.event"
DEADLINE_S = 60.0
# Of a process, a moment, or a name that a broker gives itself: that they are there, and of which type.
OWN = frozenset(
    {
        *("timestamp_in_ms", "pid", "connection", "channel", "owner_pid", "connected_at", "node", "cluster_state"),
        *("name.connection.created", "name.connection.closed", "name.channel.created"),
        *("connection_name", "port", "peer_port"),
    }
)
# (routing key, header) that only one of the two has: why.
ALONE = {("queue.created", "type"): "RabbitMQ 4 has it for classic queues too"}

Event = tuple[str, dict[str, Any], Any]


class Watcher:
    """Reads a broker's events in their order."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.connection = side.connect({"connection_name": "watcher"})
        self.channel = self.connection.channel()
        self.channel.queue_declare("events", durable=True)
        self.channel.queue_bind("events", EXCHANGE, "#")
        self.fences = 0
        self.gathered: list[Event] = []
        self.until("binding.created")

    def until(self, *keys: str) -> list[Event]:
        """What came, when all of these are among it and nothing more is on its way."""
        wanted = Counter(keys)
        end = time.monotonic() + DEADLINE_S
        while wanted - Counter(key for key, _, _ in self.gathered):
            assert time.monotonic() < end, (wanted, [key for key, _, _ in self.gathered])
            self._take()
        self.fences += 1
        fence = f"fence{self.fences}"
        assert self.side.ask("PUT", f"/global-parameters/{fence}", {"value": 1}).status_code < 300
        while not any(headers.get("name") == fence for _, headers, _ in self.gathered):
            assert time.monotonic() < end
            self._take()
        found = [event for event in self.gathered if not str(event[1].get("name", "")).startswith("fence")]
        self.gathered.clear()
        return found

    def _take(self) -> None:
        for method, properties, body in self.channel.consume("events", auto_ack=True, inactivity_timeout=1):
            if method is not None:
                assert (method.exchange, body) == (EXCHANGE, b"")
                self.gathered.append((method.routing_key, dict(properties.headers), properties))
            return


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    directory: Path = tmp_path_factory.mktemp("events")
    with both_brokers.both(directory, (PLUGIN,), {"AMQPD_EVENTS_EXCHANGE": "true"}) as (theirs, ours):
        yield theirs, ours


def told(side: Side) -> dict[str, list[Event]]:
    """By the name of the act."""
    watcher, doer = Watcher(side), Doer(side)
    found = {}
    for act in ACTS:
        act.do(doer)
        own = act.theirs if side.broker.product == "RabbitMQ" else act.ours
        found[act.name] = watcher.until(*act.keys, *own)
    return found


@pytest.fixture(scope="module")
def both_told(sides: tuple[Side, Side]) -> tuple[dict[str, list[Event]], dict[str, list[Event]]]:
    return told(sides[0]), told(sides[1])


def said_by_name(events: list[Event], key: str) -> list[dict[str, Any]]:
    return sorted((headers for of, headers, _ in events if of == key), key=lambda headers: str(headers.get("name")))


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)
def test_an_act_is_told_alike(both_told: tuple[dict[str, list[Event]], dict[str, list[Event]]], act: Act) -> None:
    theirs, ours = (events[act.name] for events in both_told)
    assert Counter(key for key, _, _ in theirs) == Counter((*act.keys, *act.theirs))
    assert Counter(key for key, _, _ in ours) == Counter((*act.keys, *act.ours))
    assert [set_of(properties) for _, _, properties in ours] == [{"delivery_mode", "headers", "timestamp"}] * len(
        ours
    )
    for key in set(act.keys) - set(act.theirs):
        pairs = zip(said_by_name(theirs, key), said_by_name(ours, key), strict=True)
        for their, our in pairs:
            assert different(key, their, our) == []


def set_of(properties: Any) -> set[str]:
    assert properties.delivery_mode == 2
    return {name for name, value in vars(properties).items() if value is not None}


def different(key: str, theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    found = [f"{name}: only one has it" for name in set(theirs) ^ set(ours) if (key, name) not in ALONE]
    for name in set(theirs) & set(ours):
        their, our = theirs[name], ours[name]
        if type(their) is not type(our):
            found.append(f"{name}: {their!r} is not of the type of {our!r}")
        elif name not in OWN and f"{name}.{key}" not in OWN and _plain(their) != _plain(our):
            found.append(f"{name}: {their!r} is not {our!r}")
    return found


def _plain(value: Any) -> Any:
    """Arguments in any order."""
    return sorted(map(str, value)) if isinstance(value, list) else value


def test_a_client_that_publishes_an_event_is_refused_alike(sides: tuple[Side, Side]) -> None:
    texts = []
    for side in sides:
        channel = side.connect({}).channel()
        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="internal exchange") as refused:
            channel.basic_publish(EXCHANGE, "queue.created", b"forged")
        texts.append(str(refused.value))
    assert texts[0] == texts[1]
