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

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amqpd.kernel import Run
from amqpd.properties import Properties
from amqpd.queues.deadletters import dead_letter, is_cycle
from amqpd.queues.moulds import State, mould_of
from amqpd.rewriting import run_names
from amqpd.routing import route_again

if TYPE_CHECKING:
    from amqpd.node import Node
    from amqpd.queues.queue import Queue

# Of `QueueHost.letters_left`, beside 1 for each death in the letter: about what it takes. A copy of another one is 1.
LETTER_COST = 4


def bury(node: Node, queue: Queue, run: Run, low: int, high: int, reason: str) -> int:
    """Take care of messages low..high-1 of the run. How many of them may leave their queue, from the first on."""
    settings = queue.settings
    count = high - low
    if settings.dead_letter_exchange is None:
        return count
    moulds = queue.mortality.moulds
    state = State(node.now_ms // 1000, node.topology.version, settings)
    mould = moulds.get(reason) if count == 1 else None
    if mould is not None:
        copied = mould.copy(run, low, state)
        if copied is not None:
            node.letters_left -= 1
            return _post(node, queue, copied, mould.properties, True, mould.targets)
    part = run if count == run.count else run.part(low, high)
    properties = node.properties.read(part.properties)
    letter = dead_letter(part, properties, queue.record.name, reason, settings, node.now_ms)
    found = route_again(node, queue.record.vhost, letter.run, letter.routing_keys)
    node.letters_left -= LETTER_COST + len(letter.deaths)
    targets = [target for target in found if not is_cycle(target.record.name, letter.deaths)]
    new_properties = node.properties.read(letter.run.properties)
    wanted = mould is None or mould.used or not mould.good_for(state)
    if wanted and count == 1 and properties.expiration is not None:
        route = node.routes.find(node, queue.record.vhost, *run_names(letter.run))
        if found and len(letter.routing_keys) == 1 and found is route.queues:

            def letter_of(like: Run) -> Run:
                read = node.properties.read(like.properties)
                return dead_letter(like, read, queue.record.name, reason, settings, node.now_ms).run

            made = mould_of(state, part, new_properties, targets, letter_of)
            if made is not None:
                moulds[reason] = made
    return _post(node, queue, letter.run, new_properties, bool(found), targets)


def _post(
    node: Node, queue: Queue, letter: Run, properties: Properties, routed: bool, targets: Sequence[Queue]
) -> int:
    """Into those of the queues that it may go back into; `routed`: there are others, or were."""
    taken, audit = letter.count, node.audit
    if queue.settings.at_least_once:
        taken = min((target.room(letter) for target in targets), default=taken)
        if not routed or taken <= 0:
            return 0
    publication = 0
    if audit.active:
        exchange, routing_key = run_names(letter)
        vhost = queue.record.vhost
        publication = audit.begin_own(vhost, exchange, routing_key, "dead_letter", taken, properties)
    for target in targets:
        room = taken
        if target.refuses:
            saved = audit.save()
            room = min(taken, target.room(letter))
            audit.restore(saved)
        if room > 0:
            target.publish(letter if room == letter.count else letter.part(0, room), properties)
            node.dirty[target] = None
    if audit.active:
        audit.end(taken, letter.body_size, bool(targets))
    audit.letter = publication
    return taken
