"""Connections, their channels and consumers: lists, one, closed.

A user sees its own; who monitors sees all, and an administrator may close them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import TypeVar

from fastapi import Request
from starlette.responses import Response

from amqpd.management import connections
from amqpd.management.across_nodes.rows import GatheredRows
from amqpd.management.connections import CloseRequest
from amqpd.management.errors import AtAnotherNode, NotFound
from amqpd.management.pacing import WalkPace, each
from amqpd.session.ports import ChannelBase, ConnectionBase
from amqpd_admin import lists, others, walks
from amqpd_admin.answers import gone
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import Listing, Row
from amqpd_admin.login import Asking, Entering, Who
from amqpd_admin.others import Told
from amqpd_admin.paths import Name
from amqpd_admin.pieces import reply_with
from amqpd_admin.rows import connections as rows
from amqpd_admin.rows.queues import consumer
from amqpd_admin.samples import CHECKED, DATA_RATES, Asked, SamplesAsked
from amqpd_admin.walks import Consuming, Wanted

T = TypeVar("T")

REPLY_TEXT_LENGTH_MAX = 255
PARTNERS: Row = {"publishes": [], "deliveries": []}
"""of one channel: what goes to which exchange and comes from which queue is counted in no broker whose `rates_mode`
is basic"""

router = api_router("connections")


def _wanted(who: Who, vhost: str | None, user: str | None = None) -> Wanted:
    def wanted(connection: ConnectionBase) -> bool:
        named = vhost in (None, connection.vhost) and user in (None, connection.user)
        return named and who.sees_connection(connection.user)

    return wanted


def _told_wanted(vhost: str | None, user: str | None = None) -> Callable[[Row], bool]:
    """The same of other nodes' rows."""
    return lambda row: vhost in (None, row["vhost"]) and user in (None, row["user"])


async def _connections(
    request: Request, who: Who, samples: SamplesAsked, vhost: str | None = None, user: str | None = None
) -> Response:
    node, told = who.parts.on.node, await others.ask_of_clients(who, "connections")
    found: Iterable[ConnectionBase | Told | None] = chain(
        walks.connections(node, _wanted(who, vhost, user)), others.seen(told, who, _told_wanted(vhost, user))
    )
    whole, more, missing = partial(rows.connection, node), partial(_add_samples, who, samples), _missing(who, told)
    text = rows.text_of
    listing: Listing[ConnectionBase | Told] = Listing(found, rows.small, whole, text, more=more, missing=missing)
    return await lists.answer(request, listing)


def _add_samples(
    who: Who, samples: SamplesAsked, connection: ConnectionBase | Told, row: Row, *, alone: bool = False
) -> None:
    """Another node has those of its own."""
    if isinstance(connection, Told) or (wanted := samples.range_of("data_rates")) is None:
        return
    if (series := who.parts.samples.of_connection(connection, alone=alone)) is not None:
        samples.add(row, DATA_RATES, series, wanted)


async def _channels(request: Request, who: Who, vhost: str | None = None) -> Response:
    node, told = who.parts.on.node, await others.ask_of_clients(who, "channels")
    found: Iterable[ChannelBase | Told | None] = chain(
        walks.channels(node, _wanted(who, vhost)), others.seen(told, who, _told_wanted(vhost))
    )
    return await _channel_list(request, who, found, _missing(who, told))


async def _channel_list(
    request: Request, who: Who, found: Iterable[ChannelBase | Told | None], missing: Callable[[], list[str]] = list
) -> Response:
    whole = partial(rows.channel, who.parts.on.node)
    text = rows.text_of_channel
    listing: Listing[ChannelBase | Told] = Listing(found, rows.small_channel, whole, text, missing=missing)
    return await lists.answer(request, listing)


async def _consumers(request: Request, who: Who, vhost: str | None = None) -> Response:
    """Of one's own connections only, as in RabbitMQ, for a user who does not monitor."""
    node, told = who.parts.on.node, await others.ask_of_clients(who, "consumers")
    found: Iterable[Consuming | Told | None] = chain(
        walks.consumers(node, _wanted(who, vhost)), others.seen(told, who, _told_wanted(vhost))
    )
    whole, missing = partial(consumer, node), _missing(who, told)
    listing: Listing[Consuming | Told] = Listing(found, lambda each: {}, whole, _text_of_consumer, missing=missing)
    return await lists.answer(request, listing)


def _text_of_consumer(consuming: Consuming | Told) -> str:
    if isinstance(consuming, Told):
        return f"{consuming.row['queue']} {consuming.row['consumer_tag']}"
    return f"{consuming.consumer.queue.record.name} {consuming.consumer.tag}"


def _missing(who: Who, told: GatheredRows) -> Callable[[], list[str]]:
    found = others.missing(who, told)
    return lambda: found


async def named(who: Who, name: str, *, to_close: bool = False) -> ConnectionBase | Told:
    """Of this node or another one. Raises NotFound, Refusal."""
    here = walks.connections(who.parts.on.node, lambda each: each.name == name)
    found: list[ConnectionBase | Told] = [*await each(here, _same)]
    if not found:
        asked = await others.ask(who, "connections", name=name)
        found += await each((Told(*at) if at[1]["name"] == name else None for at in asked), _same)
    for connection in found:
        user = connection.row["user"] if isinstance(connection, Told) else connection.user
        allowed = who.administers if to_close else who.monitors
        who.require(allowed or user == who.user, "User not authorised to access object")
        return connection
    raise NotFound("Object Not Found")


async def named_here(who: Who, name: str) -> ConnectionBase:
    """Raises NotFound, AtAnotherNode, Refusal."""
    found = await named(who, name)
    if isinstance(found, Told):
        raise AtAnotherNode(f"the connection '{name}' is one of node '{found.node}': ask there")
    return found


def _same(thing: T) -> T:
    return thing


@router.get("/connections")
async def list_all(request: Request, who: Asking, samples: Asked) -> Response:
    """All, or one's own."""
    return await _connections(request, who, samples)


@router.get("/connections/username/{user}")
async def list_of_user(request: Request, user: Name, who: Asking, samples: Asked) -> Response:
    """Those of a user."""
    return await _connections(request, who, samples, user=user)


@router.delete("/connections/username/{user}", status_code=204)
async def close_of_user(request: Request, user: Name, who: Asking) -> Response:
    """All of a user's are closed, at each node that lives."""
    who.require(who.administers or user == who.user, "User not authorised to access object")
    await connections.close(who.parts.on, who.operator, CloseRequest(user=user, reason=_reason(request)))
    await others.act(who, "close", user=user, reason=_reason(request))
    return gone()


@router.get("/connections/{name}")
async def show(request: Request, name: Name, who: Asking, samples: Asked) -> Response:
    """One connection, by its name."""
    connection = await named(who, name)
    row = rows.connection(who.parts.on.node, connection)
    if row is None:
        raise NotFound("Object Not Found")
    _add_samples(who, samples, connection, row, alone=True)
    return await lists.one(request, row)


@router.delete("/connections/{name}", status_code=204)
async def close(request: Request, name: Name, who: Asking) -> Response:
    """It is closed; its client is told the header `X-Reason`."""
    found, peers = await named(who, name, to_close=True), who.parts.peers
    if isinstance(found, Told) and peers is not None:
        await peers.act(found.node, "close", name=name, reason=_reason(request), by=who.user)
    else:
        await connections.close(who.parts.on, who.operator, CloseRequest(which=name, reason=_reason(request)))
    return gone()


@router.get("/connections/{name}/channels", dependencies=CHECKED)
async def list_channels_of(request: Request, name: Name, who: Asking) -> Response:
    """The channels of one."""
    connection = await named(who, name)
    if not isinstance(connection, Told):
        return await _channel_list(request, who, list(connection.channels.values()))
    told = await others.ask_of_clients(who, "channels", name=name)
    found = others.seen(told, who, lambda row: bool(row["connection"] == name))
    return await _channel_list(request, who, found, _missing(who, told))


@router.get("/vhosts/{vhost}/connections")
async def list_of_vhost(request: Request, vhost: Name, who: Entering, samples: Asked) -> Response:
    """Those in a virtual host."""
    who.parts.on.vhost(vhost)
    return await _connections(request, who, samples, vhost)


@router.get("/channels", dependencies=CHECKED)
async def list_channels(request: Request, who: Asking) -> Response:
    """All, or those of one's own connections."""
    return await _channels(request, who)


@router.get("/vhosts/{vhost}/channels", dependencies=CHECKED)
async def list_channels_of_vhost(request: Request, vhost: Name, who: Entering) -> Response:
    """Those in a virtual host."""
    who.parts.on.vhost(vhost)
    return await _channels(request, who, vhost)


@router.get("/channels/{name}", dependencies=CHECKED)
async def show_channel(name: Name, who: Asking) -> Response:
    """One channel, by its name, with its consumers."""
    node = who.parts.on.node

    def of_that_name(connection: ConnectionBase) -> bool:
        return name.startswith(f"{connection.name} (")

    pace = WalkPace()
    for channel in walks.channels(node, of_that_name):
        await pace.step()
        if channel is None or rows.name_of(channel) != name or (found := rows.channel(node, channel)) is None:
            continue
        who.require(who.sees_connection(channel.connection.user), "User not authorised to access object")
        details = await each(walks.consumers_of(channel), partial(consumer, node))
        return await reply_with(found | PARTNERS | {"consumer_details": details})
    return await _told_channel(who, name)


async def _told_channel(who: Who, name: str) -> Response:
    """One of another node's. Raises NotFound, Refusal."""
    told = await others.ask(who, "channels", name=name.rpartition(" (")[0])
    found = await each((Told(*at) if rows.name_of(Told(*at)) == name else None for at in told), _same)
    if not found:
        raise NotFound("Object Not Found")
    channel, row = found[0], found[0].row
    who.require(who.sees_connection(row["user"]), "User not authorised to access object")
    place = (row["connection"], row["number"])
    consuming = await others.listed(
        who, "consumers", lambda of: (of["connection"], of["channel"]) == place, name=row["connection"]
    )
    details = await each(consuming, partial(consumer, who.parts.on.node))
    return await reply_with(rows.channel_fields(*channel) | PARTNERS | {"consumer_details": details})


@router.get("/consumers")
async def list_consumers(request: Request, who: Asking) -> Response:
    """All, or those of one's own connections."""
    return await _consumers(request, who)


@router.get("/consumers/{vhost}")
async def list_consumers_of_vhost(request: Request, vhost: Name, who: Entering) -> Response:
    """Those in a virtual host."""
    who.parts.on.vhost(vhost)
    return await _consumers(request, who, vhost)


def _reason(request: Request) -> str:
    """As much of it as a client can be told (AMQP 0-9-1, reply-text is a short string)."""
    return (request.headers.get("x-reason") or "Closed via management plugin")[:REPLY_TEXT_LENGTH_MAX]
