"""Traces: virtual hosts whose messages are copied to an exchange (RabbitMQ's firehose).

What comes in: a virtual host. What goes out: tracing turned on and off; rows.
Rules: it is not kept over a restart, as in RabbitMQ.
Not here: the copies (`publishing/firehose.py`).
"""

from __future__ import annotations

from typing import TypedDict

import structlog

from amqpd.management.operators import Operator
from amqpd.management.running import Running

log = structlog.get_logger(component="operations")


class TraceRow(TypedDict):
    """A virtual host that is traced."""

    vhost: str
    traced: int
    """messages copied"""
    dropped: int
    """messages that could not be copied in time"""


def listed(on: Running) -> list[TraceRow]:
    """The virtual hosts whose messages are traced."""
    taps = on.node.firehose.taps.items()
    return [{"vhost": vhost, "traced": tap.copies.published, "dropped": tap.copies.dropped} for vhost, tap in taps]


def begin(on: Running, by: Operator, vhost: str) -> bool:
    """Whether it is new. Raises NotFound."""
    on.vhost(vhost)
    new = on.node.firehose.start(vhost)
    if new:
        on.run_effects()
        log.warning("tracing turned on by an operator: messages are copied", vhost=vhost, **by.log_fields)
    return new


def end(on: Running, by: Operator, vhost: str) -> bool:
    """Whether it was on. Raises NotFound."""
    on.vhost(vhost)
    was_on = on.node.firehose.stop(vhost)
    if was_on:
        on.run_effects()
        log.warning("tracing turned off by an operator", vhost=vhost, **by.log_fields)
    return was_on


def put(on: Running, by: Operator, vhost: str, traced: bool) -> None:
    """Turned on or off. Raises NotFound."""
    (begin if traced else end)(on, by, vhost)
