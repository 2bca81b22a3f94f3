"""Where dead letters go: routed by their exchange, published to the queues that it reaches.

What comes in: messages that die in a queue. What goes out: the same in other queues, their deaths in the headers.
Rules: 1. The letter enters its queues in the tick in which the message leaves its own: one transaction of the journal
has both or neither. 2. A missing exchange, no route, or a queue that refuses loses the letter; at-least-once keeps
the message where it was instead. 3. A letter does not go back into a queue when nobody rejected it since it died
there.
Not here: what is written into the headers (`queues/deadletters.py`), when a message dies (`queues/queue.py`).

Source: https://www.rabbitmq.com/docs/dlx, https://www.rabbitmq.com/docs/quorum-queues#dead-lettering.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqpd.kernel import Run
from amqpd.queues.deadletters import dead_letter, is_cycle
from amqpd.routing import route_again

if TYPE_CHECKING:
    from amqpd.node import Node
    from amqpd.queues.queue import Queue


def bury(node: Node, queue: Queue, run: Run, low: int, high: int, reason: str) -> int:
    """Take care of messages low..high-1 of the run. How many of them may leave their queue, from the first on."""
    settings = queue.settings
    count = high - low
    if settings.dead_letter_exchange is None:
        return count
    part = run if count == run.count else run.part(low, high)
    properties = node.properties.read(part.properties)
    letter = dead_letter(part, properties, queue.record.name, reason, settings, node.now_ms)
    vhost = queue.record.vhost
    found = route_again(node, vhost, letter.run, letter.routing_keys)
    targets = [target for target in found if not is_cycle(target.record.name, letter.deaths)]
    taken = count
    if settings.at_least_once:
        taken = min((target.room(letter.run) for target in targets), default=count)
        if not found or taken <= 0:
            return 0
    new_properties = node.properties.read(letter.run.properties)
    for target in targets:
        room = min(taken, target.room(letter.run)) if target.refuses else taken
        if room > 0:
            target.publish(letter.run if room == count else letter.run.part(0, room), new_properties)
            node.dirty[target] = None
    return taken
