"""The type x-local-random: each message goes to one of the bound queues of this node, drawn at random.

What comes in: bindings, messages with their chance and with what they know of queues (`Message.serves`). What goes
out: one queue.
Rules: 1. classic queues are bound, and nothing else, with an empty routing key; 2. the routing key of a message and
its headers are not looked at; 3. a queue that this node does not serve (another node's exclusive one, or one that is
fenced) is not drawn: without any other the message goes nowhere.
Not here: where chance comes from (`node.Services`), which queues are served (`Node.serves`).

As RabbitMQ's rabbit_exchange_type_local_random.erl, since 4.0.
"""

from __future__ import annotations

from collections.abc import Collection

from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.exchanges.fanout import FanoutMatcher
from amqpd.exchanges.matcher import Destination, Reads
from amqpd.exchanges.message import Message
from amqpd.vocabulary.records import BindingRecord, ExchangeRecord, QueueRecord

CLASSIC = "classic"


class LocalRandomMatcher(FanoutMatcher):
    """Matches each message to one of the queues that this node serves, drawn at random."""

    reads = Reads.CHANCE

    def __init__(self, record: ExchangeRecord) -> None:
        super().__init__(record)
        self._vhost = record.vhost

    def validate(self, binding: BindingRecord, queue: QueueRecord | None = None) -> None:
        if binding.routing_key:
            raise AMQPPreconditionFailed(f"Non empty binding '{binding.routing_key}' key not permitted")
        if queue is None:
            raise AMQPPreconditionFailed("Destination not found")
        kind = queue.arguments.get("x-queue-type", CLASSIC)
        if kind != CLASSIC:
            raise AMQPPreconditionFailed(f"Queue type rabbit_{kind}_queue not valid for this exchange type")

    def match_message(self, message: Message) -> Collection[Destination]:
        # Mostly all are served: only a draw that finds one that is not looks at all of them, and draws again.
        bound = self._bound.members()
        if not bound:
            return ()
        drawn = bound[int(message.chance() * len(bound))] if len(bound) > 1 else bound[0]
        if self._is_served(drawn, message):
            return (drawn,)
        served = [each for each in bound if self._is_served(each, message)]
        if len(served) < 2:
            return served
        return (served[int(message.chance() * len(served))],)

    def _is_served(self, destination: Destination, message: Message) -> bool:
        return destination[0] == "queue" and message.serves(self._vhost, destination[1])
