"""A message that an operator publishes.

What comes in: an exchange, a routing key, properties by RabbitMQ's names, a body. What goes out: the message, in the
queues that it reaches; whether it reached one.
Rules: 1. What a client would be refused is refused here: permissions, sizes, properties. 2. When the answer comes,
what is persistent is on disk. 3. No queue has it before its whole route is known; what takes long goes in steps. 4.
While memory or disk is short nothing is published: a client would be blocked.
Not here: routes (`publishing/routing.py`), getting (`getting.py`), rates: they are of connections.

Source for names: https://www.rabbitmq.com/docs/http-api-reference, /api/exchanges/{vhost}/{name}/publish.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from struct import error as StructError
from typing import Any

import trio
from pamqp import commands
from pamqp.exceptions import AMQPAccessRefused, AMQPNotFound

from amqpd.declarations.asker import Asker
from amqpd.journal.lane import NONE, joined
from amqpd.kernel import Run
from amqpd.management.asking import checked_arguments, checked_name, refusals
from amqpd.management.errors import AtAnotherNode, BadArgument, Conflict, ManagementError, Unavailable
from amqpd.management.messages.operations import SHORTAGES
from amqpd.management.messages.property_names import NUMBERS, TEXTS
from amqpd.management.operators import Operator
from amqpd.management.running import Running
from amqpd.message.content import BODY, HEADER, Content
from amqpd.message.delays import delayed_header
from amqpd.message.properties import REPLY_TO, Properties
from amqpd.message.propertylist import edited
from amqpd.message.rewriting import with_headers
from amqpd.publishing.offering import offer
from amqpd.publishing.routes import Route
from amqpd.publishing.routing import (
    COPIES_A_STEP,
    Steps,
    count_unroutable,
    queue_steps,
    remote_of,
    without_bcc,
)
from amqpd.publishing.unroutable import NACK, UnroutableOutcome
from amqpd.queues.port import QueuePort
from amqpd.session.durability import CommonReceipt

IMPERSONATOR = "impersonator"
_PUBLISH = b"\x00\x3c\x00\x28\x00\x00"
_CONTENT = b"\x00\x3c\x00\x00"


def body_of(payload: str, encoding: str = "string") -> bytes:
    """The body that a payload stands for: `string` or `base64`. Raises BadArgument."""
    if encoding == "string":
        try:
            return payload.encode()
        except UnicodeEncodeError:
            raise BadArgument("the payload has half a surrogate pair, which is no character") from None
    if encoding != "base64":
        raise BadArgument(f"payload_encoding is string or base64, not '{encoding}'")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise BadArgument("the payload is not base64") from None


async def publish(
    on: Running,
    by: Operator,
    vhost: str,
    exchange: str,
    routing_key: str,
    body: bytes,
    properties: Mapping[str, Any] | None = None,
) -> bool:
    """Whether it reached a queue, or waits for its delay. Raises BadArgument, NotFound, NotPermitted; Conflict when a
    queue that it reaches refuses it; AtAnotherNode when another node leads one; Unavailable while memory or disk is
    short."""
    node, limit = on.node, on.node.limits.message_bytes_max
    on.vhost(vhost)
    checked_name("routing key", routing_key)
    if len(body) > limit:
        raise BadArgument(f"message size {len(body)} is larger than configured max size {limit}")
    if short := sorted(SHORTAGES & node.alarms.kinds):
        raise Unavailable(f"the {short[0]} alarm is on: nothing is published until it is off")
    run = _run(exchange, routing_key, body, _raw(dict(properties or {})))
    with refusals():
        route = _route(on, by, vhost, exchange, routing_key)
        read = node.properties.read(run.properties)
        _check(on, by, vhost, route, read)
    node.totals.count_published(vhost, 1)
    if read.delay_ms:
        return await _delay(on, vhost, route, run, read)
    keys = (routing_key, *read.routing_keys)
    queues = await _found(queue_steps(node, vhost, route, keys, run, read))
    delivered = without_bcc(run, read)
    return await _offer(on, vhost, route, delivered, node.properties.read(delivered.properties, True), queues)


def _route(on: Running, by: Operator, vhost: str, exchange: str, routing_key: str) -> Route:
    """Raises what a client would be refused with."""
    asker = _asker(on, by, vhost)
    asker.require("write", "exchange", exchange)
    if exchange:
        state = on.node.topology.vhosts[vhost].exchanges.get(exchange)
        if state is None:
            raise AMQPNotFound(f"no exchange '{exchange}' in vhost '{vhost}'")
        if state.record.internal:
            raise AMQPAccessRefused(f"cannot publish to internal exchange '{exchange}' in vhost '{vhost}'")
    return Route(on.node.routes.entrance(vhost, exchange), routing_key, True)


def _check(on: Running, by: Operator, vhost: str, route: Route, properties: Properties) -> None:
    """What is claimed must be true or at least readable."""
    if route.is_topic:
        for key in (route.routing_key, *properties.routing_keys):
            _asker(on, by, vhost).require_topic("write", route.exchange, key)
    if properties.problem is not None:
        raise BadArgument(properties.problem)
    if properties.reply_to == REPLY_TO:
        raise BadArgument("fast reply consumer does not exist")
    claimed = properties.user_id
    if claimed is not None and by.user not in (None, claimed):
        user = on.node.topology.users.get(by.user or "")
        if user is None or IMPERSONATOR not in user.tags:
            raise BadArgument(f"user_id property set to '{claimed}' but authenticated user was '{by.user}'")


def _asker(on: Running, by: Operator, vhost: str) -> Asker:
    return Asker(on.node, vhost, lambda continuation: continuation, by.user)


async def _delay(on: Running, vhost: str, route: Route, run: Run, properties: Properties) -> bool:
    """It waits for its time, and says in its headers that it does."""
    node, audit, publication = on.node, on.node.audit, None
    run = with_headers(run, delayed_header(properties.delay_ms))
    read = node.properties.read(run.properties, True)
    if audit.active:
        publication = audit.begin_own(vhost, route.exchange, route.routing_key, "published", 1, read)
    route.passed.count(1, 0)
    kept = node.delay(vhost, run, properties.delay_ms, publication)
    if publication is not None:
        audit.end(publication, run.body_size, True)
    on.run_effects()
    if kept is None:
        raise Unavailable(f"the delayed messages of virtual host '{vhost}' are out of service")
    if kept:
        await on.durable(kept)
    return True


async def _found(steps: Steps) -> tuple[QueuePort, ...]:
    """Where it goes, the broker going on in between when that takes long to find out."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: tuple[QueuePort, ...] = end.value
            return found
        await trio.lowlevel.checkpoint()


async def _offer(
    on: Running, vhost: str, route: Route, run: Run, properties: Properties, queues: tuple[QueuePort, ...]
) -> bool:
    node, audit, publication = on.node, on.node.audit, None
    route.passed.count(1, len(queues))
    if not queues:
        nacked = route.unroutable == NACK
        count_unroutable(
            node, vhost, route.exchange, UnroutableOutcome.NACKED if nacked else UnroutableOutcome.RETURNED, 1
        )
        return False
    if len(queues) > 1 and not node.disk_space.fits(run, queues, properties):
        raise Unavailable(f"message of {run.body_size} bytes for {len(queues)} queues is larger than the disk")
    if (away := remote_of(queues)) is not None:
        raise _led_by_another(on, away)
    if (behind := next((queue for queue in queues if queue.lane.lagging), None)) is not None:
        raise Unavailable(f"the copies of the queue '{behind.record.name}' are too far behind: try again later")
    if audit.active:
        publication = audit.begin_own(vhost, route.exchange, route.routing_key, "published", 1, properties)
    waits, refused = NONE, ""
    receipts: dict[str, CommonReceipt] = {}
    for first in range(0, len(queues), COPIES_A_STEP):
        if first:
            on.run_effects()
            await trio.lowlevel.checkpoint()
        for queue in queues[first : first + COPIES_A_STEP]:
            if queue.is_deleted:
                continue
            receipt = CommonReceipt() if queue.is_remote else None
            taken, wait = offer(node, (queue,), run, properties, publication, receipt=receipt)
            if receipt is not None:
                receipts[queue.record.name] = receipt
            waits = joined(waits, wait)
            if taken < 1:
                refused = refused or queue.record.name
    if publication is not None:
        audit.end(publication, run.body_size, True)
    on.run_effects()
    if waits:
        await on.durable(waits)
    refused = refused or next((name for name, receipt in receipts.items() if receipt.refused), "")
    if refused:
        raise Conflict(f"the queue '{refused}' refused the message: look at its limits, and whether it is in service")
    return True


def _led_by_another(on: Running, queue: QueuePort) -> ManagementError:
    """Why a message for it is not taken here, and where it is."""
    record, here = queue.record, on.node.identity.name
    leader = on.node.sources.leader_of(record)
    what = f"it goes to the queue '{record.name}' in virtual host '{record.vhost}'"
    if not leader or leader == here:
        return Unavailable(f"{what}, which no node leads at present: try again later")
    return AtAnotherNode(f"{what}, which node '{leader}' leads: publish it there")


def _raw(given: Mapping[str, Any]) -> bytes:
    """The property flags and list. Raises BadArgument."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name in TEXTS or name == "type":
            if not isinstance(value, str):
                raise BadArgument(f"the property {name} must be a text")
            checked_name(f"property {name}", value)
            values["message_type" if name == "type" else name] = value
        elif name in NUMBERS:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= NUMBERS[name]:
                raise BadArgument(f"the property {name} must be a number from 0 to {NUMBERS[name]}")
            values[name] = _moment(value) if name == "timestamp" else value
        elif name != "headers":
            raise BadArgument(f"there is no property '{name}'")
    try:
        raw = commands.Basic.Properties(**values).marshal()
        headers = checked_arguments(given.get("headers") or {})
        return edited(raw, headers) if headers else raw
    except (ValueError, StructError) as error:
        raise BadArgument(f"the properties cannot be written: {error}") from None


def _moment(posix_s: int) -> datetime:
    try:
        return datetime.fromtimestamp(posix_s, UTC)
    except (OverflowError, ValueError, OSError):
        raise BadArgument(f"{posix_s} is no timestamp: it is in seconds") from None


def _run(exchange: str, routing_key: str, body: bytes, properties: bytes) -> Run:
    """As a client would have sent it."""
    content = Content(1, _PUBLISH + _short(exchange) + _short(routing_key) + b"\x00")
    content.add(HEADER, _CONTENT + len(body).to_bytes(8, "big") + properties)
    if body:
        content.add(BODY, body)
    return content.run()


def _short(text: str) -> bytes:
    encoded = checked_name("name", text).encode("utf-8", "surrogateescape")
    return bytes((len(encoded),)) + encoded
