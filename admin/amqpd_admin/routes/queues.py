"""Queues: lists, one, declared, deleted, purged, read from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from fastapi import Request
from starlette.responses import Response

from amqpd.management import bindings, queues
from amqpd.management.across_nodes import led_queues
from amqpd.management.across_nodes.leaders import leaders_of
from amqpd.management.errors import NotFound
from amqpd.management.figures import totals
from amqpd.management.messages import getting
from amqpd.management.pacing import each
from amqpd.queues.consumer import Subscriber
from amqpd.queues.port import QueuePort
from amqpd.session.consumers import Consumer
from amqpd_admin import lists, others
from amqpd_admin.answers import bad_request, changed, gone, reply
from amqpd_admin.bodies import body_of, flag, need, number, table, text
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import Listing, Row
from amqpd_admin.login import Administrator, Asking, Entering, Who
from amqpd_admin.paths import Name
from amqpd_admin.queue_order import QueueOrder
from amqpd_admin.rows import queues as rows
from amqpd_admin.rows.bindings import Default, listing
from amqpd_admin.samples import Asked, SamplesAsked, add_to_queue
from amqpd_admin.walks import Consuming, seen_vhosts

router = api_router("queues")

CONDITIONS = ("backlog", "empty", "used", "unused")
"""messages are in it; none are; somebody consumes; nobody does"""


def _listing(request: Request, who: Who, vhosts: Collection[str], samples: SamplesAsked) -> Listing[QueuePort]:
    node, leaders = who.parts.on.node, leaders_of(who.parts)
    asked, found = request.query_params, totals.queues(node, vhosts)
    if asked.get("disable_stats") == "true":
        with_totals = asked.get("enable_queue_totals") == "true"

        def bare(queue: QueuePort) -> Row:
            return rows.bare(node, queue, leaders, totals=with_totals)

        ahead = leaders.ask if with_totals else None
        choose = QueueOrder(who, vhosts, leaders, lambda column: with_totals and column in rows.TOTALS).choose
        return Listing(found, rows.small, bare, ahead=ahead, missing=lambda: leaders.missing, choose=choose)
    choose = QueueOrder(who, vhosts, leaders, lambda _: True).choose
    return Listing(
        found,
        rows.small,
        lambda queue: rows.whole(node, queue, leaders),
        more=partial(_add_samples, who, samples),
        ahead=leaders.ask,
        missing=lambda: leaders.missing,
        choose=choose,
    )


def _add_samples(who: Who, samples: SamplesAsked, queue: QueuePort, row: Row, *, alone: bool = False) -> None:
    """Its leader has those of another one."""
    if ("lengths" in samples or "msg_rates" in samples) and not queue.is_remote:
        add_to_queue(row, who.parts.samples.of_queue(queue, alone=alone), samples)


async def _listed(request: Request, listing: Listing[QueuePort]) -> Response:
    """With `only`, which is our own, those of which all of that holds. Raises Refusal."""
    if not (conditions := [each for each in request.query_params.get("only", "").split(",") if each]):
        return await lists.answer(request, listing)
    if not set(conditions) <= set(CONDITIONS):
        raise bad_request(f"only is a list of {', '.join(CONDITIONS)}")
    found = await each(listing.things, lambda queue: queue)
    if listing.ahead is not None:
        await listing.ahead(found)

    def meant(queue: QueuePort) -> QueuePort | None:
        if queue.is_remote:
            # Of what its leader does not say nothing holds.
            row = listing.whole(queue) or {}
            messages, consumers = row.get("messages"), row.get("consumers")
        else:
            messages, consumers = queue.ready_count + queue.unacked_count, queue.consumer_count
        counts = {"backlog": messages, "empty": messages, "used": consumers, "unused": consumers}
        holds = all(
            counts[each] is not None and bool(counts[each]) == (each in ("backlog", "used")) for each in conditions
        )
        return queue if holds else None

    return await lists.answer(request, replace(listing, things=await each(found, meant), choose=None))


@router.get("/queues")
@router.get("/queues/detailed")
async def list_all(request: Request, who: Asking, samples: Asked) -> Response:
    """Of all virtual hosts that the user may see."""
    return await _listed(request, _listing(request, who, await seen_vhosts(who), samples))


@router.get("/queues/{vhost}")
async def list_of_vhost(request: Request, vhost: Name, who: Entering, samples: Asked) -> Response:
    """Of one virtual host."""
    who.parts.on.vhost(vhost)
    return await _listed(request, _listing(request, who, [vhost], samples))


@router.get("/queues/{vhost}/{name}")
async def show(request: Request, vhost: Name, name: Name, who: Entering, samples: Asked) -> Response:
    """One queue, with its consumers: of those of other users only who monitors is told."""
    node = who.parts.on.node
    who.parts.on.vhost(vhost)
    queue, leaders = who.parts.on.queue(vhost, name), leaders_of(who.parts)
    await leaders.ask([queue])
    row = rows.whole(node, queue, leaders)
    if row is None:
        raise NotFound("Object Not Found")  # meanwhile
    _add_samples(who, samples, queue, row, alone=True)

    def consumer(consumer: Subscriber) -> Row | None:
        if not isinstance(consumer, Consumer) or not who.sees_connection(consumer.channel.connection.user):
            return None
        return rows.consumer(node, Consuming(consumer.channel, consumer))

    # What comes from which exchange and goes to which channel is counted in no broker whose `rates_mode` is basic.
    row |= {"incoming": [], "deliveries": []}
    row["consumer_details"] = await each(queue.subscribers(), consumer)
    if queue.is_remote:
        # Whoever consumes is at its leader.
        told = await others.listed(
            who, "consumers", lambda row: (row["vhost"], row["queue"]) == (vhost, name), vhost=vhost, queue=name
        )
        row["consumer_details"] = await each(told, partial(rows.consumer, node))
    return await lists.one(request, row)


@router.put("/queues/{vhost}/{name}", status_code=201)
async def declare(request: Request, vhost: Name, name: Name, who: Entering) -> Response:
    """`auto_delete`, `durable`, `arguments`; `node`: this one, or any of the cluster for a quorum queue."""
    body = await body_of(request)
    arguments = table(body, "arguments")
    _refuse_other_node(who, text(body, "node", ""), arguments)
    new = await queues.declare(
        who.parts.on,
        who.operator,
        vhost,
        name,
        durable=flag(body, "durable", True),
        auto_delete=flag(body, "auto_delete", False),
        arguments=arguments,
    )
    return changed(new)


def _refuse_other_node(who: Who, wanted: str, arguments: Mapping[str, Any]) -> None:
    """A queue that would not be where its client wants it is not made elsewhere without a word. Raises Refusal."""
    here = who.parts.on.node.identity.name
    if not wanted or wanted == here:
        return
    if wanted not in others.names(who):
        raise bad_request(f"node '{wanted}' is none of this cluster's")
    if arguments.get("x-queue-type", "classic") != "quorum":
        raise bad_request(f"a classic queue is made at the node that is asked, '{here}': ask '{wanted}' for it")


@router.delete("/queues/{vhost}/{name}", status_code=204)
async def delete(request: Request, vhost: Name, name: Name, who: Entering) -> Response:
    """`if-empty=true` and `if-unused=true` keep one that is not."""
    asked = request.query_params
    await led_queues.delete(
        who.parts.on,
        leaders_of(who.parts),
        who.operator,
        vhost,
        name,
        if_empty=asked.get("if-empty") == "true",
        if_unused=asked.get("if-unused") == "true",
    )
    return gone()


@router.delete("/queues/{vhost}/{name}/contents", status_code=204)
async def purge(vhost: Name, name: Name, who: Entering) -> Response:
    """Its ready messages go, whichever node leads it."""
    await led_queues.purge(who.parts.on, leaders_of(who.parts), who.operator, vhost, name)
    return gone()


@router.post("/queues/{vhost}/{name}/get")
async def get(request: Request, vhost: Name, name: Name, who: Entering) -> Response:
    """Messages, as basic.get takes them: `count`, `ackmode` (or the older `requeue`), `encoding`, `truncate`."""
    body = await body_of(request)
    if "ackmode" not in body and "requeue" in body:
        ackmode = "ack_requeue_true" if flag(body, "requeue", True) else "ack_requeue_false"
        need(body, "count", "encoding")
    else:
        need(body, "ackmode", "count", "encoding")
        ackmode = text(body, "ackmode")
    if ackmode not in ("ack_requeue_true", "reject_requeue_true", "ack_requeue_false", "reject_requeue_false"):
        raise bad_request(f"invalid_ackmode: {ackmode}")
    encoding = text(body, "encoding", "auto")
    if encoding not in ("auto", "base64"):
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    if who.parts.on.node.ports.get((vhost, name)) is None:
        raise NotFound(f"NOT_FOUND - no queue '{name}' in vhost '{vhost}'")
    found = await getting.get(
        who.parts.on,
        who.operator,
        vhost,
        name,
        count=number(body, "count"),
        ackmode=ackmode,  # type: ignore[arg-type]
        encoding=encoding,  # type: ignore[arg-type]
        truncate=number(body, "truncate") if "truncate" in body else None,
    )
    # No properties are an empty list in RabbitMQ, and tools print one so.
    return reply([{**message, "properties": message["properties"] or []} for message in found])


@router.post("/queues/{vhost}/{name}/actions", status_code=204)
async def act(request: Request, vhost: Name, name: Name, who: Administrator) -> Response:
    """There are none: RabbitMQ's were about mirrors."""
    who.parts.on.queue(vhost, name)
    body = await body_of(request)
    need(body, "action")
    raise bad_request(["unknown", text(body, "action")])


@router.get("/queues/{vhost}/{name}/bindings")
async def list_bindings(request: Request, vhost: Name, name: Name, who: Entering) -> Response:
    """That to the default exchange first. A queue that is not there has none, as in RabbitMQ: tools ask before they
    delete."""
    there = bindings.walked(who.parts.on.vhost(vhost), destination=name, destination_type="queue")
    return await lists.answer(request, listing(who, chain([Default(vhost, name)], there)))
