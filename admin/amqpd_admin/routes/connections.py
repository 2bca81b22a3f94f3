"""Connections, their channels and consumers: lists, one, closed.

A user sees its own; who monitors sees all, and an administrator may close them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpd.management import connections
from amqpd.management.errors import NotFound
from amqpd.management.pacing import Pace, each
from amqpd.session.ports import ChannelBase, ConnectionBase
from amqpd_admin import lists, walks
from amqpd_admin.answers import gone
from amqpd_admin.lists import Listing
from amqpd_admin.login import Asking, Entering, Who
from amqpd_admin.paths import Name
from amqpd_admin.pieces import reply_with
from amqpd_admin.rows import connections as rows
from amqpd_admin.rows.queues import consumer
from amqpd_admin.samples import CHECKED, DATA_RATES, Asked, SamplesAsked
from amqpd_admin.walks import Consuming, Wanted

router = APIRouter(tags=["connections"])


def _wanted(who: Who, vhost: str | None, user: str | None = None) -> Wanted:
    def wanted(connection: ConnectionBase) -> bool:
        named = vhost in (None, connection.vhost) and user in (None, connection.user)
        return named and who.sees_connection(connection.user)

    return wanted


async def _connections(
    request: Request, who: Who, samples: SamplesAsked, vhost: str | None = None, user: str | None = None
) -> Response:
    node, more = who.behind.on.node, partial(_add_samples, who, samples)
    found = walks.connections(node, _wanted(who, vhost, user))
    return await lists.answer(request, Listing(found, rows.small, partial(rows.connection, node), more=more))


def _add_samples(
    who: Who, samples: SamplesAsked, connection: ConnectionBase, row: lists.Row, *, alone: bool = False
) -> None:
    if (wanted := samples.range_of("data_rates")) is None:
        return
    if (series := who.behind.samples.of_connection(connection, alone=alone)) is not None:
        samples.add(row, DATA_RATES, series, wanted)


async def _channels(request: Request, who: Who, vhost: str | None = None) -> Response:
    return await _channel_list(request, who, walks.channels(who.behind.on.node, _wanted(who, vhost)))


async def _channel_list(request: Request, who: Who, found: Iterable[ChannelBase | None]) -> Response:
    node = who.behind.on.node
    return await lists.answer(request, Listing(found, rows.small_channel, partial(rows.channel, node)))


async def _consumers(request: Request, who: Who, vhost: str | None = None) -> Response:
    """Of one's own connections only, as in RabbitMQ, for a user who does not monitor."""
    node = who.behind.on.node
    found = walks.consumers(node, _wanted(who, vhost))
    return await lists.answer(request, Listing(found, lambda each: {}, partial(consumer, node), _text_of_consumer))


def _text_of_consumer(consuming: Consuming) -> str:
    return f"{consuming.consumer.queue.record.name} {consuming.consumer.tag}"


async def named(who: Who, name: str, *, to_close: bool = False) -> ConnectionBase:
    """Raises NotFound, Refusal."""
    for connection in await each(walks.connections(who.behind.on.node, lambda each: each.name == name), _same):
        allowed = who.administers if to_close else who.monitors
        who.require(allowed or connection.user == who.user, "User not authorised to access object")
        return connection
    raise NotFound("Object Not Found")


def _same(connection: ConnectionBase) -> ConnectionBase:
    return connection


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
    """All of a user's are closed."""
    who.require(who.administers or user == who.user, "User not authorised to access object")
    await connections.close(who.behind.on, who.operator, user=user, reason=_reason(request))
    return gone()


@router.get("/connections/{name}")
async def show(request: Request, name: Name, who: Asking, samples: Asked) -> Response:
    """One connection, by its name."""
    connection = await named(who, name)
    row = rows.connection(who.behind.on.node, connection)
    if row is None:
        raise NotFound("Object Not Found")
    _add_samples(who, samples, connection, row, alone=True)
    return await lists.one(request, row)


@router.delete("/connections/{name}", status_code=204)
async def close(request: Request, name: Name, who: Asking) -> Response:
    """It is closed; its client is told the header `X-Reason`."""
    await named(who, name, to_close=True)
    await connections.close(who.behind.on, who.operator, which=name, reason=_reason(request))
    return gone()


@router.get("/connections/{name}/channels", dependencies=CHECKED)
async def list_channels_of(request: Request, name: Name, who: Asking) -> Response:
    """The channels of one."""
    connection = await named(who, name)
    return await _channel_list(request, who, list(connection.channels.values()))


@router.get("/vhosts/{vhost}/connections")
async def list_of_vhost(request: Request, vhost: Name, who: Entering, samples: Asked) -> Response:
    """Those in a virtual host."""
    who.behind.on.vhost(vhost)
    return await _connections(request, who, samples, vhost)


@router.get("/channels", dependencies=CHECKED)
async def list_channels(request: Request, who: Asking) -> Response:
    """All, or those of one's own connections."""
    return await _channels(request, who)


@router.get("/vhosts/{vhost}/channels", dependencies=CHECKED)
async def list_channels_of_vhost(request: Request, vhost: Name, who: Entering) -> Response:
    """Those in a virtual host."""
    who.behind.on.vhost(vhost)
    return await _channels(request, who, vhost)


@router.get("/channels/{name}", dependencies=CHECKED)
async def show_channel(name: Name, who: Asking) -> Response:
    """One channel, by its name, with its consumers."""
    node = who.behind.on.node

    def of_that_name(connection: ConnectionBase) -> bool:
        return name.startswith(f"{connection.name} (")

    pace = Pace()
    for channel in walks.channels(node, of_that_name):
        await pace.step()
        if channel is None or rows.name_of(channel) != name or (found := rows.channel(node, channel)) is None:
            continue
        who.require(who.sees_connection(channel.connection.user), "User not authorised to access object")
        found["consumer_details"] = await each(walks.consumers_of(channel), partial(consumer, node))
        return await reply_with(found)
    raise NotFound("Object Not Found")


@router.get("/consumers")
async def list_consumers(request: Request, who: Asking) -> Response:
    """All, or those of one's own connections."""
    return await _consumers(request, who)


@router.get("/consumers/{vhost}")
async def list_consumers_of_vhost(request: Request, vhost: Name, who: Entering) -> Response:
    """Those in a virtual host."""
    who.behind.on.vhost(vhost)
    return await _consumers(request, who, vhost)


def _reason(request: Request) -> str:
    return request.headers.get("x-reason") or "Closed via management plugin"
