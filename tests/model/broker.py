"""The model of a broker: queues, what leads to them, what is delayed, and what a disk remembers of all that.

What comes in: the events of a real node, in their order (`watching.py`). What goes out: what clients must receive; an
AssertionError when an event may not happen now.
Rules: 1. Who publishes says what it expects to come in where (`expect`); what is left of that afterwards was refused,
and there must have been a reason. 2. `commit` is one transaction: after a restart everything durable is as it was
then, in the order in which it was published.
Not here: what one queue does (`queues.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any

from tests.model.messages import DELIVERY_LIMIT, EXPIRED, MAXLEN, Message, goes_round, made_dead_letter
from tests.model.queues import ClientChannel, Consumer, ModelQueue

FAN = "fan"


@dataclass
class Sent:
    """What a client must receive next on its channel."""

    tag: int
    message: Message
    redelivered: bool
    consumer: str | None
    returns: int


class Model:
    def __init__(self) -> None:
        self.now_ms = 0
        self.queues: dict[str, ModelQueue] = {}
        self.fan: set[str] = set()
        """the queues behind the exchange of this name"""
        self.delayed: list[tuple[int, Message]] = []
        self.incoming: dict[str, list[Message]] = {}
        self.refused: set[int] = set()
        """publishes, by the number in their bodies, that a queue did not take"""
        self.sent: dict[ClientChannel, list[Sent]] = {}
        self.disk: dict[str, list[Message]] = {}
        self.disk_delayed: list[tuple[int, Message]] = []
        self.events: Counter[str] = Counter()

    def route(self, exchange: str, key: str) -> list[str]:
        if exchange == FAN:
            return sorted(self.fan)
        return [key] if exchange == "" and key in self.queues else []

    # In

    def expect(self, message: Message, targets: Iterable[str]) -> None:
        for name in targets:
            self.incoming.setdefault(name, []).append(message)

    def entered(self, name: str, numbers: list[int]) -> None:
        expected = self.incoming.get(name, [])
        found = [message.number for message in expected[: len(numbers)]]
        assert found == numbers, f"{numbers} come into {name}, expected were {expected}"
        queue = self.queues[name]
        for message in expected[: len(numbers)]:
            queue.enter(message, self.now_ms)
        del expected[: len(numbers)]

    def refuse_rest(self, by_client: bool, counted: bool = True) -> None:
        """Everything has been published: what has not come in by now was refused; `counted` in the queue's facts."""
        for name, left in self.incoming.items():
            queue = self.queues[name]
            for message in left:
                assert queue.asked.refuses, f"{name} did not take {message}"
                may = queue.full_for(message.size) or queue.expired_now or queue.bytes_guessed
                assert may, f"{name} refused {message}, and has space"
                self.events["refused"] += 1
                queue.facts["refused"] += counted
                if by_client:
                    self.refused.add(message.number)
        self.incoming = {}

    # Out

    def delivered(
        self, name: str, numbers: list[int], redelivered: bool, channel: ClientChannel, tag: int, tag_name: str | None
    ) -> None:
        queue = self.queues[name]
        consumer = None
        if tag_name is not None:
            consumer = next(each for each in queue.consumers if (each.channel, each.tag) == (channel, tag_name))
        for number in numbers:
            message = queue.deliver(number, redelivered, channel, tag, consumer, self.now_ms)
            self.sent.setdefault(channel, []).append(Sent(tag, copy(message), redelivered, tag_name, message.returns))
            tag += 1

    def dispatch_begins(self, name: str, bytes_guessed: bool) -> None:
        queue = self.queues[name]
        queue.bytes_guessed = bytes_guessed
        queue.expire(self.now_ms)
        if queue.ready:
            queue.choose()

    def dispatch_ends(self, name: str, dropped: int, instants: int) -> None:
        """`dropped` is what the real queue has counted by now; this many `instants` came when it was ending, and have
        their dispatch before them."""
        queue = self.queues.get(name)
        if queue is not None:
            while queue.facts["dropped"] < dropped:
                queue.drop()
                self.events["dropped"] += 1
            queue.end_instants(self.now_ms, instants)
            queue.expire(self.now_ms)

    def dead_lettered(
        self, name: str, numbers: list[int], deaths: int, reason: str, refused: bool, dead_letter: Callable[[], int]
    ) -> int:
        """The node dead-letters these messages of the queue, which have died so often before; `refused`: they
        never were in it."""
        queue = self.queues[name]
        outer, self.incoming = self.incoming, {}
        dying = [self._dying(queue, number, deaths, reason, refused, outer) for number in numbers]
        exchange, key = queue.asked.dead_letter_exchange, queue.asked.word("dead-letter-routing-key")
        assert exchange is not None
        dead_letters = [made_dead_letter(message, name, reason, exchange, key) for message in dying]
        for each in dead_letters:
            self.expect(each, (q for q in self.route(exchange, each.key) if not goes_round(each, q)))
        self.events[f"dead-lettered {reason}"] += 1
        before = {target: len(left) for target, left in self.incoming.items()}
        taken = dead_letter()
        if queue.asked.at_least_once:
            self._check_at_least_once(queue, dead_letters, before, taken)
        else:
            assert taken == len(numbers), "who does not wait for a place lets everything go"
            self.refuse_rest(by_client=False, counted=False)
        self.incoming = outer
        if not refused:
            for message in dying[:taken]:
                queue.dead_letter(message, reason)
        return taken

    def _dying(
        self, queue: ModelQueue, number: int, deaths: int, reason: str, refused: bool, outer: dict[str, list[Message]]
    ) -> Message:
        """A dead letter may stand beside the message of its number that came before it, and die first."""
        if refused:
            return next(each for each in outer[queue.name] if each.number == number)
        dies = any((each.number, why) == (number, reason) for each, why in queue.pending)
        if reason == EXPIRED and not dies:
            # In the middle of a dispatch, when consumers have been served.
            queue.end_instants(self.now_ms)
            queue.expire(self.now_ms)
        if reason == MAXLEN and queue.bytes_guessed and not any(each.number == number for each in queue.ready):
            queue.not_expired_yet(number)
        held = queue.ready if reason == MAXLEN else [message for message, why in queue.pending if why == reason]
        found = [each for each in held if (each.number, len(each.deaths)) == (number, deaths)]
        assert found, f"{number} dies in {queue.name} ({reason}), and may not"
        return found[0]

    def _check_at_least_once(
        self, queue: ModelQueue, dead_letters: list[Message], before: dict[str, int], taken: int
    ) -> None:
        """Each dead letter that is taken is in all its queues; who is not, is in none."""
        for name, left in self.incoming.items():
            assert before[name] - len(left) == taken, f"of {before[name]} dead letters {len(left)} are not in {name}"
        if taken < len(dead_letters):
            each = dead_letters[taken]
            targets = self.route(each.exchange, each.key)
            full = [
                self.queues[name]
                for name in targets
                if self.queues[name].full_for(each.size)
                or self.queues[name].expired_now
                or self.queues[name].bytes_guessed
            ]
            assert not targets or full, f"{each} could have been dead-lettered in {targets}"
            self.events["not dead-lettered"] += 1
        self.incoming = {}

    def released(self, number: int) -> None:
        due_ms, message = next(each for each in self.delayed if each[1].number == number)
        assert due_ms <= self.now_ms, f"{message} comes too early"
        assert due_ms == min(each[0] for each in self.delayed), f"{message} comes before others that are due"
        self.delayed.remove((due_ms, message))
        self.events["released"] += 1
        self.expect(message, self.route(message.exchange, message.key))

    # The disk

    def commit(self) -> None:
        self.disk = {
            name: [
                copy(message)
                for message in sorted(queue.held, key=lambda each: each.place)
                if message.persistent or queue.asked.quorum
            ]
            for name, queue in self.queues.items()
            if queue.durable
        }
        self.disk_delayed = list(self.delayed)

    def on_disk(self, number: int, name: str) -> bool:
        return any(message.number == number for message in self.disk.get(name, ()))

    def restart(self, clean: bool) -> None:
        """Everything is as it was with the last transaction; of deliveries since, nothing is known."""
        old, self.queues = self.queues, {}
        for name, queue in old.items():
            if not queue.durable:
                self.fan.discard(name)
                continue
            new = self.queues[name] = ModelQueue(name, queue.asked.arguments, True, self.now_ms)
            new.asked.policy = queue.asked.policy
            for message in self.disk.get(name, ()):
                message.turn = (message.turn[0], 1, message.place)
                if not message.delivered and not clean:
                    message.delivered = None
                limit = new.delivery_limit
                if new.asked.quorum and limit is not None and message.returns > limit:
                    new.pending.append((message, DELIVERY_LIMIT))
                else:
                    new.ready.append(message)
            new.ready.sort(key=lambda each: each.turn)
            new.next_place = queue.next_place
            new.facts["accepted"] = len(new.held)
        self.delayed = list(self.disk_delayed)
        self.incoming, self.sent = {}, {}
        self.commit()

    def delete(self, name: str) -> list[Any]:
        """The queue is gone, also for the disk: the consumers that it had."""
        self.disk.pop(name, None)
        self.fan.discard(name)
        return self.queues.pop(name).consumers

    def release_client(self, number: int) -> None:
        """A client is gone: its consumers go, its messages come back."""
        for queue in self.queues.values():
            for consumer in [each for each in queue.consumers if each.channel[0] == number]:
                queue.cancel(consumer, self.now_ms)

    def consumer(self, channel: ClientChannel, tag: str) -> tuple[ModelQueue, Consumer] | None:
        for queue in self.queues.values():
            for each in queue.consumers:
                if (each.channel, each.tag) == (channel, tag):
                    return queue, each
        return None
