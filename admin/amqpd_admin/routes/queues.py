"""Queues: lists, one, declared, deleted, purged, read from."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from itertools import chain

from fastapi import Request
from starlette.responses import Response

from amqpd.management import bindings, queues
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
from amqpd_admin.homes import Homes
from amqpd_admin.lists import Listing, Row
from amqpd_admin.login import Administrator, Asking, Entering, Who
from amqpd_admin.paths import Name
from amqpd_admin.queue_order import QueueOrder
from amqpd_admin.rows import queues as rows
from amqpd_admin.rows.bindings import Default, listing
from amqpd_admin.samples import Asked, SamplesAsked, add_to_queue
from amqpd_admin.walks import Consuming, seen_vhosts

router = api_router("queues")


def _listing(request: Request, who: Who, vhosts: Collection[str], samples: SamplesAsked) -> Listing[QueuePort]:
    node, homes = who.behind.on.node, Homes(who.behind)
    asked, found = request.query_params, totals.queues(node, vhosts)
    if asked.get("disable_stats") == "true":
        with_totals = asked.get("enable_queue_totals") == "true"

        def bare(queue: QueuePort) -> Row:
            return rows.bare(node, queue, homes, totals=with_totals)

        ahead = homes.ask if with_totals else None
        choose = QueueOrder(who, vhosts, homes, lambda column: with_totals and column in rows.TOTALS).choose
        return Listing(found, rows.small, bare, ahead=ahead, missing=lambda: homes.missing, choose=choose)
    choose = QueueOrder(who, vhosts, homes, lambda _: True).choose
    return Listing(
        found,
        rows.small,
        lambda queue: rows.whole(node, queue, homes),
        more=partial(_add_samples, who, samples),
        ahead=homes.ask,
        missing=lambda: homes.missing,
        choose=choose,
    )


def _add_samples(who: Who, samples: SamplesAsked, queue: QueuePort, row: Row, *, alone: bool = False) -> None:
    """Its home has those of another one."""
    if ("lengths" in samples or "msg_rates" in samples) and not queue.elsewhere:
        add_to_queue(row, who.behind.samples.of_queue(queue, alone=alone), samples)


@router.get("/queues")
@router.get("/queues/detailed")
async def list_all(request: Request, who: Asking, samples: Asked) -> Response:
    """Of all virtual hosts that the user may see."""
    return await lists.answer(request, _listing(request, who, await seen_vhosts(who), samples))


@router.get("/queues/{vhost}")
async def list_of_vhost(request: Request, vhost: Name, who: Entering, samples: Asked) -> Response:
    """Of one virtual host."""
    who.behind.on.vhost(vhost)
    return await lists.answer(request, _listing(request, who, [vhost], samples))


@router.get("/queues/{vhost}/{name}")
async def show(request: Request, vhost: Name, name: Name, who: Entering, samples: Asked) -> Response:
    """One queue, with its consumers: of those of other users only who monitors is told."""
    node = who.behind.on.node
    who.behind.on.vhost(vhost)
    queue, homes = who.behind.on.queue(vhost, name), Homes(who.behind)
    await homes.ask([queue])
    row = rows.whole(node, queue, homes)
    if row is None:
        raise NotFound("Object Not Found")  # meanwhile
    _add_samples(who, samples, queue, row, alone=True)

    def consumer(consumer: Subscriber) -> Row | None:
        if not isinstance(consumer, Consumer) or not who.sees_connection(consumer.channel.connection.user):
            return None
        return rows.consumer(node, Consuming(consumer.channel, consumer))

    row["consumer_details"] = await each(queue.subscribers(), consumer)
    if queue.elsewhere:
        # Whoever consumes is at its home.
        told = await others.listed(
            who, "consumers", lambda row: (row["vhost"], row["queue"]) == (vhost, name), vhost=vhost, queue=name
        )
        row["consumer_details"] = await each(told, partial(rows.consumer, node))
    return await lists.one(request, row)


@router.put("/queues/{vhost}/{name}", status_code=201)
async def declare(request: Request, vhost: Name, name: Name, who: Entering) -> Response:
    """`auto_delete`, `durable`, `arguments`."""
    body = await body_of(request)
    new = await queues.declare(
        who.behind.on,
        who.operator,
        vhost,
        name,
        durable=flag(body, "durable", True),
        auto_delete=flag(body, "auto_delete", False),
        arguments=table(body, "arguments"),
    )
    return changed(new)


@router.delete("/queues/{vhost}/{name}", status_code=204)
async def delete(request: Request, vhost: Name, name: Name, who: Entering) -> Response:
    """`if-empty=true` and `if-unused=true` keep one that is not."""
    asked = request.query_params
    await queues.delete(
        who.behind.on,
        who.operator,
        vhost,
        name,
        if_empty=asked.get("if-empty") == "true",
        if_unused=asked.get("if-unused") == "true",
    )
    return gone()


@router.delete("/queues/{vhost}/{name}/contents", status_code=204)
async def purge(vhost: Name, name: Name, who: Entering) -> Response:
    """Its ready messages go, wherever its home is."""
    queue, peers, homes = who.behind.on.node.ports.get((vhost, name)), who.behind.peers, Homes(who.behind)
    if peers is None or queue is None or homes.home_of(queue) not in peers.others():
        await queues.purge(who.behind.on, who.operator, vhost, name)
    else:
        await peers.act(homes.home_of(queue), "purge", vhost=vhost, name=name, by=who.user)
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
    if who.behind.on.node.ports.get((vhost, name)) is None:
        raise NotFound(f"NOT_FOUND - no queue '{name}' in vhost '{vhost}'")
    found = await getting.get(
        who.behind.on,
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
    who.behind.on.queue(vhost, name)
    body = await body_of(request)
    need(body, "action")
    raise bad_request(["unknown", text(body, "action")])


@router.get("/queues/{vhost}/{name}/bindings")
async def list_bindings(request: Request, vhost: Name, name: Name, who: Entering) -> Response:
    """That to the default exchange first."""
    who.behind.on.queue(vhost, name)
    there = bindings.walked(who.behind.on.vhost(vhost), destination=name, destination_type="queue")
    return await lists.answer(request, listing(who, chain([Default(vhost, name)], there)))
