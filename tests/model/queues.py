"""What a queue of ours does, in lists: the specification that `amqpd/queues/` is held against.

What comes in: what happens to the queue, in the order in which it happens. What goes out: its contents, its counts;
an AssertionError when something happens that may not.
Rules: a message is ready, unacked (delivered; or dying: rejected and not yet dead-lettered), or has left in one of
the ways that `LEFT` names.
Not here: where dead letters go, disks (`broker.py`); what a client sees of it (`machine.py`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from tests.model.messages import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED, Message

LEFT = ("acked", "rejected", "expired", "dropped", "delivery_limit", "purged")
ClientChannel = tuple[int, int]
"""number of the client, number of its channel"""
UNLIMITED = 1 << 20


@dataclass(eq=False)
class Consumer:
    channel: ClientChannel
    tag: str
    prefetch: int
    no_ack: bool
    priority: int


@dataclass
class Asked:
    """What arguments and policy ask of a queue; the tighter number counts, the argument's word."""

    arguments: dict[str, Any]
    policy: dict[str, Any] = field(default_factory=dict)

    def number(self, name: str) -> int | None:
        return min((each[name] for each in (self.arguments, self.policy) if name in each), default=None)

    def word(self, name: str) -> str | None:
        value = self.arguments.get(name, self.policy.get(name))
        assert value is None or isinstance(value, str)
        return value

    @property
    def quorum(self) -> bool:
        return self.word("queue-type") == "quorum"

    @property
    def overflow(self) -> str:
        if self.quorum and "overflow" in self.policy:
            return str(self.policy["overflow"])
        return self.word("overflow") or "drop-head"

    @property
    def dead_letter_exchange(self) -> str | None:
        return self.word("dead-letter-exchange")

    @property
    def limited(self) -> bool:
        return self.number("max-length") is not None or self.number("max-length-bytes") is not None

    @property
    def drops(self) -> bool:
        return self.limited and (
            self.overflow == "drop-head" or (self.quorum and self.overflow == "reject-publish-dlx")
        )

    @property
    def refuses(self) -> bool:
        return self.limited and not self.drops

    @property
    def at_least_once(self) -> bool:
        return (
            self.quorum
            and self.word("dead-letter-strategy") == "at-least-once"
            and self.overflow == "reject-publish"
            and self.dead_letter_exchange is not None
        )


class ModelQueue:
    def __init__(self, name: str, arguments: dict[str, Any], durable: bool, now_ms: int) -> None:
        self.name = name
        self.asked = Asked(arguments)
        self.durable = durable
        self.ready: list[Message] = []
        self.unacked: dict[tuple[ClientChannel, int], tuple[Message, Consumer | None]] = {}
        """by channel and delivery tag"""
        self.pending: list[tuple[Message, str]] = []
        self.facts: Counter[str] = Counter()
        self.consumers: list[Consumer] = []
        self.active: Consumer | None = None
        self.getters = 0
        self.used_ms = now_ms
        self.next_place = 0
        self.next_return = 0
        self.bytes_guessed = False
        """after a restart nobody knows how the bytes of a row are shared by its messages, until it is read"""
        self.expired_now = 0
        """in this step"""

    # In

    def enter(self, message: Message, now_ms: int) -> None:
        ttls = [ttl for ttl in (self.asked.number("message-ttl"), message.expiration) if ttl is not None]
        # The clock is rounded down: one more, so that nothing goes too early.
        instant, deadline = bool(ttls) and min(ttls) == 0, None
        if ttls and not instant:
            deadline = now_ms + min(ttls) + 1
        self.next_place += 1
        priority = min(message.priority or 0, self.asked.number("max-priority") or 0)
        turn = (-priority, 1, self.next_place)
        changes: dict[str, Any] = {"place": self.next_place, "turn": turn, "delivered": False}
        self._wait(replace(message, **changes, deadline_ms=deadline, instant=instant))
        self.facts["accepted"] += 1

    def _wait(self, message: Message) -> None:
        self.ready.append(message)
        self.ready.sort(key=lambda each: each.turn)

    def full_for(self, size: int) -> bool:
        length, nbytes = self.asked.number("max-length"), self.asked.number("max-length-bytes")
        # Dead letters that nobody takes count, or they would pile up.
        held = len(self.ready) + (len(self.pending) if self.asked.at_least_once else 0)
        return (length is not None and held + 1 > length) or (nbytes is not None and self.ready_bytes + size > nbytes)

    # Out, to clients

    def deliver(
        self, number: int, redelivered: bool, channel: ClientChannel, tag: int, consumer: Consumer | None, now_ms: int
    ) -> Message:
        assert self.ready, f"{number} is delivered by {self.name}, where nothing is ready"
        message = self.ready.pop(0)
        assert message.number == number, f"{number} is delivered by {self.name}, but {message} is first"
        assert message.deadline_ms is None or message.deadline_ms > now_ms, f"{message} is over at {now_ms}"
        if message.delivered is not None:
            assert redelivered == message.delivered, f"redelivered is {redelivered} for {message}"
        if consumer is not None:
            self._check_turn(consumer)
        message.delivered = True
        if consumer is not None and consumer.no_ack:
            self.facts["acked"] += 1
        else:
            self.unacked[channel, tag] = message, consumer
        return message

    def _check_turn(self, consumer: Consumer) -> None:
        self.choose()
        assert consumer in self.served(), f"{consumer} is not active"
        assert self.credit(consumer) > 0, f"{consumer} has no credit"
        better = [other for other in self.served() if other.priority > consumer.priority and self.credit(other) > 0]
        assert not better, f"{better} should be served before {consumer}"

    def served(self) -> list[Consumer]:
        if not self.asked.arguments.get("single-active-consumer"):
            return self.consumers
        if self.active is None or (self.asked.quorum and self._best().priority > self.active.priority):
            return []
        return [self.active]

    def credit(self, consumer: Consumer) -> int:
        if not consumer.prefetch or consumer.no_ack:
            return UNLIMITED
        return consumer.prefetch - sum(holder is consumer for _, holder in self.unacked.values())

    def consume(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        self.choose()

    def cancel(self, consumer: Consumer, now_ms: int) -> None:
        self.consumers.remove(consumer)
        self.used_ms = now_ms
        if consumer is self.active:
            self.active = None
        self.choose()

    def _best(self) -> Consumer:
        """The first that came among those with the highest priority."""
        return max(self.consumers, key=lambda each: each.priority)

    def choose(self) -> None:
        """The single active one stays; that of a quorum queue goes when it has nothing and a better one waits."""
        if self.consumers and (
            self.active is None
            or (
                self.asked.quorum
                and self._best().priority > self.active.priority
                and not any(holder is self.active for _, holder in self.unacked.values())
            )
        ):
            self.active = self._best()

    # Back from clients

    def ack(self, channel: ClientChannel, tag: int) -> None:
        del self.unacked[channel, tag]
        self.facts["acked"] += 1

    def reject(self, channel: ClientChannel, tag: int) -> None:
        message, _ = self.unacked.pop((channel, tag))
        self._die(message, REJECTED)

    def requeue(self, channel: ClientChannel, tag: int) -> None:
        message, _ = self.unacked.pop((channel, tag))
        if self.asked.quorum:
            message.returns += 1
            limit = self.delivery_limit
            if limit is not None and message.returns > limit:
                self._die(message, DELIVERY_LIMIT)
                return
        self.come_back(message)

    def come_back(self, message: Message) -> None:
        if self.asked.quorum:
            # Behind the others that came back, before those that never left.
            self.next_return += 1
            message.turn = (0, 0, self.next_return)
        self._wait(message)

    @property
    def delivery_limit(self) -> int | None:
        limit = self.asked.number("delivery-limit")
        return 20 if limit is None else limit

    def _die(self, message: Message, reason: str) -> None:
        if self.asked.dead_letter_exchange is None:
            self.facts[reason] += 1
        else:
            self.pending.append((message, reason))

    # Without clients

    def overdue(self, now_ms: int) -> list[Message]:
        return [each for each in self.ready if each.deadline_ms is not None and each.deadline_ms <= now_ms]

    def end_instants(self, now_ms: int, but: int = 0) -> None:
        """A consumer that did not get them by now never will; except the last ones."""
        found = sorted((message for message in self.held if message.instant), key=lambda each: each.place)
        for message in found[: max(0, len(found) - but)]:
            message.instant, message.deadline_ms = False, now_ms

    def expire(self, now_ms: int) -> None:
        """What has expired is not ready any more. It waits to be dead-lettered; where nobody wants that, it is
        gone."""
        for message in self.overdue(now_ms):
            self.ready.remove(message)
            self.expired_now += 1
            self.pending.append((message, EXPIRED))
        if self.asked.dead_letter_exchange is None:
            for _, reason in self.pending:
                self.facts[reason] += 1
            self.pending = []

    def not_expired_yet(self, number: int) -> None:
        """What is on disk only has to be read before it is dead-lettered; the length limit may find it first."""
        found = [each for each in self.pending if (each[0].number, each[1]) == (number, EXPIRED)]
        for entry in found:
            self.pending.remove(entry)
            self.expired_now -= 1
            self.ready.insert(0, entry[0])

    @property
    def over_limit(self) -> bool:
        length, nbytes = self.asked.number("max-length"), self.asked.number("max-length-bytes")
        return bool(self.ready) and (
            (length is not None and len(self.ready) > length) or (nbytes is not None and self.ready_bytes > nbytes)
        )

    def drop(self) -> Message:
        assert self.asked.drops, f"{self.name} may not drop anything"
        assert self.over_limit or self.bytes_guessed, f"{self.name} is not over its limit"
        self.facts["dropped"] += 1
        return self.ready.pop(0)

    def dead_letter(self, message: Message, reason: str) -> None:
        """The message leaves as a dead letter, for this reason."""
        self.facts["dead_lettered"] += 1
        if reason == MAXLEN:
            dropped = self.drop()
            assert dropped is message, f"{message} is dropped, but {dropped} is first"
        else:
            self.pending.remove(self._dies(message, reason))
            self.facts[reason] += 1

    def _dies(self, message: Message, reason: str) -> tuple[Message, str]:
        at = next((at for at, each in enumerate(self.pending) if each[0] is message and each[1] == reason), None)
        assert at is not None, f"{message} is dead-lettered ({reason}), and is not among {self.pending}"
        if reason != EXPIRED:
            # What expires, expires in the order of deadlines; between equal ones the queue may choose.
            before = self.pending[:at]
            assert all(other == EXPIRED for _, other in before), f"{message} is dead-lettered before {before}"
        return self.pending[at]

    def purge(self) -> int:
        count = len(self.ready)
        self.ready = []
        self.facts["purged"] += count
        return count

    # Sums

    @property
    def held(self) -> list[Message]:
        return [*self.ready, *(each for each, _ in self.unacked.values()), *(each for each, _ in self.pending)]

    @property
    def unacked_count(self) -> int:
        return len(self.unacked) + len(self.pending)

    @property
    def ready_bytes(self) -> int:
        return sum(message.size for message in self.ready)

    @property
    def unacked_bytes(self) -> int:
        return sum(message.size for message in self.held) - self.ready_bytes

    def check_conservation(self) -> None:
        left = sum(self.facts[way] for way in LEFT)
        assert self.facts["accepted"] == len(self.held) + left, f"{self.name}: {self.facts}, {len(self.held)} held"
