"""Where dead letters go: routed by their exchange, published to the queues that it reaches.

What comes in: messages that die in a queue. What goes out: the same in other queues, their deaths in the headers.
Rules: 1. The dead letter enters its queues in the tick in which the message leaves its own: one transaction of the
journal has both or neither. 2. A missing exchange, no route, or a queue that refuses (or is out of service) loses the
dead letter; at-least-once keeps the message where it was instead. So does every queue for one whose leader is another
node, or none at present, or whose copies are too far behind: that one is well, and only takes none now; what a full
queue refused, which stands nowhere, waits with the delayed messages. 3. A dead letter does not go back into a queue
when nobody rejected it since it died there. 4. A queue that another node leads and that is reached gets it first, and
those of this node when that has decided (`queues/transit.py`).
Not here: what is written into the headers (`queues/deadletters.py`), when a message dies (`queues/queue.py`).

Source: https://www.rabbitmq.com/docs/dlx, https://www.rabbitmq.com/docs/quorum-queues#dead-lettering.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from amqpd.audit.publication import Publication
from amqpd.exchanges import Reads
from amqpd.flow.turns import COPY_WORK
from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.message.rewriting import run_names
from amqpd.publishing.acceptance import COPIES_AT_ONCE
from amqpd.publishing.offering import FAULT, capacity, offer, send
from amqpd.publishing.ports import PublishingNode
from amqpd.publishing.routes import Route
from amqpd.publishing.routing import (
    at_once,
    awaited_of,
    find,
    in_steps,
    queue_steps,
    route_again,
)
from amqpd.queues.deadletters import DeadLetter, cycle_of, dead_letter_of
from amqpd.queues.delayed import AWAY_REASON
from amqpd.queues.expiry import LATER
from amqpd.queues.leader import LeaderQueue
from amqpd.queues.port import QueuePort
from amqpd.queues.templates import TemplateState, template_of
from amqpd.queues.transit import Transit

# What a dead letter takes, in the unit of `flow/turns.py`, beside what its size and its copies take; and one that
# is made from the last one's template.
DEAD_LETTER_WORK, COPIED_DEAD_LETTER_WORK = 20, 4
# Its headers are read, written and read again.
HEADER_BYTES_A_WORK = 16
# Routing keys with which a dead letter is routed in one step.
KEYS_AT_ONCE = 16
# What is kept with the delayed messages is tried first after this; then as they are.
DEAD_LETTER_AGAIN_MS = 500
# That a queue's dead letters wait for one that takes none now stands in the log this often: it may be so for good.
WAITS_TOLD_MS = 60_000


def dead_letter(
    node: PublishingNode,
    queue: LeaderQueue,
    run: Run,
    low: int,
    high: int,
    reason: str,
    transit: Transit | None = None,
) -> tuple[int, int]:
    """Take care of messages low..high-1 of the run. How many of them may leave their queue, from the first on, and
    the dead letters' publication in the audit log, which their end names; 0: none; LATER: they are in transit."""
    settings = queue.settings
    count = high - low
    if settings.dead_letter_exchange is None:
        return count, 0
    templates = queue.dead_letter_templates
    state = TemplateState(node.now_ms // 1000, node.topology.version, settings)
    names = None if transit is None else transit.names
    template = templates.get(reason) if count == 1 and names is None else None
    if template is not None:
        copied = template.copy(run, low, state)
        if copied is not None:
            node.work_left -= COPIED_DEAD_LETTER_WORK
            return _post(node, queue, copied, template.properties, True, template.targets, transit)
    part = run if count == run.count else run.part(low, high)
    properties = node.properties.read(part.properties, True)
    published_deaths = node.limits.published_deaths
    dead_letter = dead_letter_of(part, properties, queue.record.name, reason, settings, node.now_ms, published_deaths)
    node.work_left -= DEAD_LETTER_WORK + part.header_size // HEADER_BYTES_A_WORK
    if dead_letter is None:
        _tell_lost(node, queue, "died too often")
        return count, 0
    node.work_left -= dead_letter.run.header_size // HEADER_BYTES_A_WORK
    new_properties = node.properties.read(dead_letter.run.properties, True)
    if names is not None:
        targets: Sequence[QueuePort] = node.queues_named(queue.record.vhost, names)
        return _post(node, queue, dead_letter.run, new_properties, True, targets, transit)
    if _takes_long(node, queue, dead_letter):
        publication = _begin_own(node, queue, dead_letter.run, count, new_properties)
        exchange, routing_key = run_names(dead_letter.run)
        route = Route(node.routes.entrance(queue.record.vhost, exchange), routing_key, False)
        steps = _post_slowly(node, queue, dead_letter, route, new_properties, publication)
        node.dispatching.carry_out(steps, queue)
        return count, 0 if publication is None else publication.first
    vhost, routing_keys = queue.record.vhost, dead_letter.routing_keys
    found = route_again(node, vhost, dead_letter.run, routing_keys, new_properties, transit is not None)
    cycle = cycle_of(dead_letter.deaths)
    targets = [target for target in found if target.record.name not in cycle]
    wanted = template is None or template.used or not template.good_for(state)
    # With a route there is a virtual host too: a queue outlives its own for a moment, while that is being deleted.
    if wanted and count == 1 and properties.expiration is not None and found:
        route = find(node, vhost, *run_names(dead_letter.run))
        if len(routing_keys) == 1 and found is route.queues:

            def dead_letter_from(like: Run) -> Run:
                read = node.properties.read(like.properties, True)
                name = queue.record.name
                made = dead_letter_of(like, read, name, reason, settings, node.now_ms, published_deaths)
                return like if made is None else made.run

            new_template = template_of(state, part, new_properties, targets, dead_letter_from)
            if new_template is not None:
                templates[reason] = new_template
    return _post(node, queue, dead_letter.run, new_properties, bool(found), targets, transit)


def keep_dead_letters(node: PublishingNode, queue: LeaderQueue, run: Run, low: int, high: int, reason: str) -> None:
    """Dead letters of messages low..high-1 of the run, which stand nowhere, wait for a queue that takes none now: in
    the store of delayed messages, which are released when all of their queues take them. It has a bound for them."""
    vhost, name = queue.record.vhost, queue.record.name
    part = run if high - low == run.count else run.part(low, high)
    published_deaths = node.limits.published_deaths
    properties = node.properties.read(part.properties, True)
    dead_letter = dead_letter_of(part, properties, name, reason, queue.settings, node.now_ms, published_deaths)
    node.work_left -= DEAD_LETTER_WORK + part.header_size // HEADER_BYTES_A_WORK  # made once more
    if dead_letter is None or vhost not in node.topology.vhosts:
        return
    node.work_left -= dead_letter.run.header_size // HEADER_BYTES_A_WORK
    made = node.properties.read(dead_letter.run.properties, True)
    route = find(node, vhost, *run_names(dead_letter.run))
    keys = tuple(dead_letter.routing_keys)
    found = at_once(node, queue_steps(node, vhost, route, keys, dead_letter.run, made, False, True))
    kept, cycle, lost = None, cycle_of(dead_letter.deaths), "its queues refuse it"
    # Where chance decides it may have been for others than now.
    by_chance = bool(found) and bool(route.reads & Reads.CHANCE)
    if by_chance or awaited_of([target for target in found if target.record.name not in cycle]) is not None:
        lost = "too many wait for queues that take none now"
        publication = _begin_own(node, queue, dead_letter.run, dead_letter.run.count, made)
        stays = awaited_of(found, True) is not None
        kept = node.delay(vhost, dead_letter.run, DEAD_LETTER_AGAIN_MS if stays else 0, publication)
        if publication is not None:
            node.audit.end(publication, dead_letter.run.body_size, kept is not None)
    if kept is None:
        _tell_lost(node, queue, lost)


def _post(
    node: PublishingNode,
    queue: LeaderQueue,
    dead_letter: Run,
    properties: Properties,
    routed: bool,
    targets: Sequence[QueuePort],
    transit: Transit | None,
) -> tuple[int, int]:
    """Into those of the queues that it may go back into; `routed`: there are others, or were."""
    taken = dead_letter.count
    away = awaited_of(targets, True)
    if away is not None:
        if node.now_ms >= queue.dead_letters_wait_told_ms + WAITS_TOLD_MS:
            queue.dead_letters_wait_told_ms = node.now_ms
            node.log(
                "dead_letters_wait",
                queue=queue.record.name,
                vhost=queue.record.vhost,
                target=away.record.name,
                reason=AWAY_REASON,
            )
        return 0, 0
    far = [target for target in targets if target.is_remote]
    if far and transit is None:
        return 0, 0
    if queue.settings.at_least_once:
        taken = min((capacity(node, target, dead_letter) for target in targets), default=taken)
        if not routed or taken <= 0:
            return 0, 0
    if far and transit is not None:
        run = dead_letter if taken == dead_letter.count else dead_letter.part(0, taken)
        return _send(node, queue, run, properties, targets, far, transit)
    publication = _begin_own(node, queue, dead_letter, taken, properties)
    node.work_left -= COPY_WORK * len(targets)
    entered = _copy(node, targets, dead_letter, taken, properties, publication)
    if publication is not None:
        node.audit.end(publication, dead_letter.body_size, bool(targets))
    # At least once: a queue that has it already may get it twice.
    gone = taken if entered or not queue.settings.at_least_once else 0
    return gone, 0 if publication is None else publication.first


def _send(
    node: PublishingNode,
    queue: LeaderQueue,
    dead_letter: Run,
    properties: Properties,
    targets: Sequence[QueuePort],
    far: Sequence[QueuePort],
    transit: Transit,
) -> tuple[int, int]:
    """To those of the targets that other nodes lead."""
    publication = _begin_own(node, queue, dead_letter, dead_letter.count, properties)
    first = 0 if publication is None else publication.first
    near = tuple([target.record.name for target in targets if not target.is_remote])
    transit.begin(dead_letter, first, queue.settings.at_least_once, near)
    if not send(node, far, dead_letter, properties, publication, transit, partial(_decided, node, queue, transit)):
        return 0, 0
    return dead_letter.count, LATER


def _decided(node: PublishingNode, queue: LeaderQueue, transit: Transit) -> None:
    if transit.refused:
        _tell_lost(node, queue, "its queues refuse it")
    try:
        queue.arrived(transit)
    except Exception as error:  # noqa: BLE001 - the queue's; quarantine reports it, or raises it on
        node.quarantine(queue, error)


def _tell_lost(node: PublishingNode, queue: LeaderQueue, reason: str) -> None:
    """Not a line for each: it may happen thousands of times a second."""
    second = node.now_ms // 1000
    if queue.dead_letter_lost_told_s != second:
        queue.dead_letter_lost_told_s = second
        node.log("dead_letter_lost", queue=queue.record.name, vhost=queue.record.vhost, reason=reason)


def _begin_own(
    node: PublishingNode, queue: LeaderQueue, dead_letter: Run, taken: int, properties: Properties
) -> Publication | None:
    """In the audit log, if it records, the dead letter's first `taken` messages are published."""
    if not node.audit.active:
        return None
    exchange, routing_key = run_names(dead_letter)
    return node.audit.begin_own(queue.record.vhost, exchange, routing_key, "dead_letter", taken, properties)


def _copy(
    node: PublishingNode,
    targets: Sequence[QueuePort],
    dead_letter: Run,
    taken: int,
    properties: Properties,
    publication: Publication | None,
) -> bool:
    """Into the targets; False when there was a fault in one of them, or the disk has no space for all."""
    if len(targets) > 1 and not node.disk_space.fits(dead_letter, targets, properties):
        return False
    part = dead_letter if taken == dead_letter.count else dead_letter.part(0, taken)
    before = [(target.facts, target.facts.accepted) for target in targets if isinstance(target, LeaderQueue)]
    entered = offer(node, targets, part, properties, publication, None, False)[0] != FAULT
    for facts, accepted in before:
        facts.dead_letters_in += facts.accepted - accepted
    return entered


def _takes_long(node: PublishingNode, queue: LeaderQueue, dead_letter: DeadLetter) -> bool:
    """To find out where it goes, and to bring it there. At-least-once has to know at once which queues take it,
    and so has everybody while some may be remote, or take none now."""
    if queue.settings.at_least_once or node.remote or node.journal.lagging:
        return False
    if queue.record.vhost not in node.topology.vhosts:
        return False
    exchange = queue.settings.dead_letter_exchange or ""
    entrance = node.routes.entrance(queue.record.vhost, exchange)
    return not entrance.light or len(dead_letter.routing_keys) > KEYS_AT_ONCE


def _post_slowly(
    node: PublishingNode,
    queue: LeaderQueue,
    dead_letter: DeadLetter,
    route: Route,
    properties: Properties,
    publication: Publication | None,
) -> Iterator[None]:
    """One transaction of the journal has the dead letter and the end of what died (`Dispatching.carry_out`). It may
    begin in a later tick, when the virtual host is gone."""
    vhost, run = queue.record.vhost, dead_letter.run
    steps = queue_steps(node, vhost, route, tuple(dead_letter.routing_keys), run, properties, False)
    found = yield from in_steps(node, steps)
    cycle = cycle_of(dead_letter.deaths)
    for at in range(0, len(found), COPIES_AT_ONCE):
        yield
        targets = [
            target
            for target in found[at : at + COPIES_AT_ONCE]
            if not target.is_deleted and target.record.name not in cycle
        ]
        node.work_left -= COPY_WORK * len(targets)
        if any(target.is_remote for target in targets):
            # Its leader has moved in between: what died is dead here, and comes again from the disk.
            node.journal.stray()
        _copy(node, targets, run, run.count, properties, publication)
    if publication is not None:
        node.audit.end(publication, run.body_size, bool(found))
