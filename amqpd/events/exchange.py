"""The event exchange: what happens in the broker is published to `amq.rabbitmq.event`, for those who bind a queue.

What comes in: changes of the topology and who asked for them, log-ins, connections, channels, consumers, alarms. What
goes out: messages without a body, whose routing key is the event (queue.created) and whose headers are its facts.
Rules: 1. It is off until `start`. While no queue is bound, an event costs a look. 2. Nobody waits for it: what comes
faster than the node has time for is dropped and counted (`publishing/copies.py`); what strangers cause has half of
the space. 3. While memory or disk is short, only alarms are told: publishers are blocked then, and the node does not
publish in their place. 4. Publishing an event causes none.
Not here: what an event says (`changes.py`, `sessions.py`), that the exchange exists
(`topology/metadata/bootstrap.py`).

Source: https://www.rabbitmq.com/docs/event-exchange; rabbit_exchange_type_event.erl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from amqpd.audit.acts import Asker
from amqpd.events import sessions
from amqpd.events.changes import INTERNAL_USER, deleted, put, record_of
from amqpd.events.messages import event_message
from amqpd.events.sessions import Facts
from amqpd.faults import TASK
from amqpd.kernel import Run
from amqpd.publishing.copies import PENDING_BYTES_MAX, OwnPublishes
from amqpd.publishing.ports import PublishingNode
from amqpd.session.credit import Subscription
from amqpd.session.durability import ConfirmingChannel
from amqpd.session.events import SessionEvents
from amqpd.session.ports import ChannelBase, ConnectionBase
from amqpd.topology.plans import EVENT_EXCHANGE
from amqpd.vocabulary.caller import CLI_USER
from amqpd.vocabulary.client import LoginClient
from amqpd.vocabulary.records import Arguments, Change, Key, Put, Record

SHORTAGES = frozenset(("memory", "disk"))
STRANGERS_BYTES_MAX = PENDING_BYTES_MAX // 2


class EventExchange(SessionEvents):
    """Publishes the events of one node to the exchange `amq.rabbitmq.event`."""

    def __init__(self, node: PublishingNode) -> None:
        self._node = node
        self._name = node.identity.name
        self._before: dict[Key, Record | None] = {}
        """what was there before the changes that are being applied"""
        self.copies: OwnPublishes | None = None
        """None: it is off"""

    def start(self, vhost: str | None) -> None:
        """Publish to the exchange of this virtual host while that has it; None: it stays off."""
        if vhost is None:
            return
        node = self._node
        self.copies = OwnPublishes(node, vhost, EVENT_EXCHANGE, "events", "event", _as_it_is)
        node.topology.before_changes = self._remember
        node.acts.told_changes = self._changed

    @property
    def _wanted(self) -> bool:
        """A queue is bound."""
        if self.copies is None:
            return False
        contents = self._node.topology.vhosts.get(self.copies.record.vhost)
        return (
            contents is not None
            and EVENT_EXCHANGE in contents.exchanges
            and bool(contents.bindings_from(EVENT_EXCHANGE))
        )

    def _publish(self, said: Callable[[], Iterable[tuple[str, Facts]]]) -> None:
        """Only while it is wanted. What fails in it is no matter of those who are told of."""
        node, copies = self._node, self.copies
        assert copies is not None
        short = not node.alarms.kinds.isdisjoint(SHORTAGES)
        try:
            for event, facts in said():
                if short and not event.startswith("alarm."):
                    copies.drop(1)
                    continue
                run = event_message(event, facts, node.now_ms)
                copies.add(run, event, 1, run.nbytes)
        except Exception as error:  # noqa: BLE001 - this event's; faults reports it, or raises it on
            node.faults.contain(TASK, "events", error)

    def _one(self, event: str, facts: Callable[..., Facts], *about: Any) -> None:
        if self._wanted:
            self._publish(lambda: [(event, facts(*about))])

    # The topology

    def _remember(self, changes: Sequence[Change]) -> None:
        """They are about to be applied."""
        topology = self._node.topology
        keys = [change.record.key if isinstance(change, Put) else change.key for change in changes]
        self._before = {key: record_of(topology, key) for key in keys}

    def _changed(self, change: Change, by: Asker | None) -> None:
        """It was applied."""
        key = change.record.key if isinstance(change, Put) else change.key
        before, now = self._before.get(key), change.record if isinstance(change, Put) else None
        self._before[key] = now
        if not self._wanted:
            return
        user = CLI_USER if by is None else by.user or INTERNAL_USER
        self._publish(
            lambda: (
                (event, {**facts, "user_who_performed_action": user})
                for event, facts in (
                    deleted(key, before) if now is None else put(now, before, self._name, self._node.topology)
                )
            )
        )

    # Connections, channels, consumers

    def logged_in(self, connection: LoginClient, user: str) -> None:
        assert isinstance(connection, ConnectionBase)
        self._one("user.authentication.success", sessions.login, connection, user)

    def login_refused(self, connection: LoginClient, reason: str) -> None:
        if not self._wanted:
            return
        copies = self.copies
        assert isinstance(connection, ConnectionBase)
        assert copies is not None
        if copies.pending_bytes > STRANGERS_BYTES_MAX:
            copies.drop(1)
            return
        self._one("user.authentication.failure", sessions.login, connection, connection.claimed_user, reason)

    def connection_opened(self, connection: LoginClient) -> None:
        assert isinstance(connection, ConnectionBase)
        self._one("connection.created", sessions.connection_created, connection, self._name, self._node.now_ms)

    def connection_closed(self, connection: LoginClient) -> None:
        assert isinstance(connection, ConnectionBase)
        self._one("connection.closed", sessions.connection_closed, connection, self._name)

    def channel_opened(self, channel: ConfirmingChannel) -> None:
        assert isinstance(channel, ChannelBase)
        self._one("channel.created", sessions.channel_created, channel, self._name)

    def channel_closed(self, channel: ConfirmingChannel) -> None:
        assert isinstance(channel, ChannelBase)
        self._one("channel.closed", sessions.channel_closed, channel, self._name)

    def consumer_added(self, channel: ConfirmingChannel, consumer: Subscription, arguments: Arguments) -> None:
        assert isinstance(channel, ChannelBase)
        self._one("consumer.created", sessions.consumer_created, channel, consumer, arguments, self._name)

    def consumer_removed(self, channel: ConfirmingChannel, consumer: Subscription) -> None:
        assert isinstance(channel, ChannelBase)
        self._one("consumer.deleted", sessions.consumer_deleted, channel, consumer, self._name)

    # Alarms

    def alarm(self, kind: str, on: bool) -> None:
        """It is on from now, or no longer."""
        if self._wanted:
            self._publish(lambda: [("alarm.set" if on else "alarm.cleared", {"source": kind, "node": self._name})])


def _as_it_is(run: Any) -> Run:
    assert isinstance(run, Run)
    return run
