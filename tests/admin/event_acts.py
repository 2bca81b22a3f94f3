"""What is done on both brokers to compare the events of it, and which events that is.

What comes in: one broker. What goes out: acts, each with the routing keys that it has to cause on both, and those
that one of the two causes alone, with the reason.
Rules: in this order: a later act needs what an earlier one made.
Not here: the comparison (`test_events_against_rabbitmq.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pika
import pika.exceptions

from tests.admin.both_brokers import Side

QUEUE_ARGUMENTS = {"x-max-length": 5, "x-queue-type": "classic", "x-overflow": "drop-head"}
PREDECLARED = 6


class Doer:
    """One broker, and the client that does something on it."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.connection: Any = None
        self.channel: Any = None

    def connect(self) -> None:
        self.connection = self.side.connect({"connection_name": "doer"})

    def open(self) -> None:
        self.channel = self.connection.channel()

    def close(self) -> None:
        self.connection.close()

    def fails_to_log_in(self) -> None:
        parameters = pika.URLParameters(self.side.broker.url)
        parameters.credentials = pika.PlainCredentials("guest", "wrong")
        with contextlib.suppress(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(parameters)

    def asks(self, method: str, path: str, body: object = None) -> None:
        answer = self.side.ask(method, path, body)
        assert answer.status_code < 300, (path, answer.text)


class Act(NamedTuple):
    """`keys`: of events that both tell; `theirs`, `ours`: that one of them tells alone."""

    name: str
    do: Callable[[Doer], object]
    keys: tuple[str, ...]
    theirs: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()
    why: str = ""


def http(method: str, path: str, body: object = None) -> Callable[[Doer], None]:
    return lambda doer: doer.asks(method, path, body)


STEPS_OF_A_DELETION = ("parameter.set", "parameter.cleared")
HELD = {"pattern": "^held", "definition": {"max-length": 50}, "apply-to": "queues", "priority": 2}
EMPTY_LIMITS = "the last limit that is cleared leaves an empty parameter"
ACTS = [
    Act("a client connects", Doer.connect, ("user.authentication.success", "connection.created")),
    Act("a channel", Doer.open, ("channel.created",)),
    Act(
        "a queue",
        lambda doer: doer.channel.queue_declare("q", durable=True, arguments=QUEUE_ARGUMENTS),
        ("queue.created",),
    ),
    Act("an exclusive queue", lambda doer: doer.channel.queue_declare("own", exclusive=True), ("queue.created",)),
    Act(
        "a quorum queue",
        lambda doer: doer.channel.queue_declare("qq", durable=True, arguments={"x-queue-type": "quorum"}),
        ("queue.created",),
    ),
    Act(
        "an exchange",
        lambda doer: doer.channel.exchange_declare("x", "topic", arguments={"alternate-exchange": "amq.fanout"}),
        ("exchange.created",),
    ),
    Act(
        "a binding",
        lambda doer: doer.channel.queue_bind("q", "x", "a.b", arguments={"foo": 1, "bar": "z"}),
        ("binding.created",),
    ),
    Act(
        "a binding of exchanges", lambda doer: doer.channel.exchange_bind("x", "amq.topic", "#"), ("binding.created",)
    ),
    Act(
        "an unbinding",
        lambda doer: doer.channel.queue_unbind("q", "x", "a.b", arguments={"foo": 1, "bar": "z"}),
        ("binding.deleted",),
    ),
    Act(
        "a consumer",
        lambda doer: (
            doer.channel.basic_qos(prefetch_count=7),
            doer.channel.basic_consume("q", print, consumer_tag="c", arguments={"x-priority": 5}),
        ),
        ("consumer.created",),
    ),
    Act("no consumer any more", lambda doer: doer.channel.basic_cancel("c"), ("consumer.deleted",)),
    Act(
        "an exchange goes",
        lambda doer: doer.channel.exchange_delete("x"),
        ("binding.deleted", "exchange.deleted"),
        theirs=STEPS_OF_A_DELETION,
        why="a step of RabbitMQ's own deletion",
    ),
    Act("a queue goes", lambda doer: doer.channel.queue_delete("q"), ("queue.deleted",)),
    Act("a channel goes", lambda doer: doer.channel.close(), ("channel.closed",)),
    Act("a connection goes", Doer.close, ("connection.closed", "queue.deleted")),
    Act(
        "a refused log-in",
        Doer.fails_to_log_in,
        ("user.authentication.failure",),
        theirs=("connection.closed",),
        why="one that was never told to be there is not told to be gone",
    ),
    Act(
        "a virtual host",
        http("PUT", "/vhosts/told", {"description": "why", "tags": "one,two"}),
        ("vhost.created", "permission.created", *["exchange.created"] * PREDECLARED),
        theirs=("exchange.created",),
        why="the default exchange is no record",
    ),
    Act("it changes", http("PUT", "/vhosts/told", {"description": "other", "tags": "one"}), ("vhost.updated",)),
    Act(
        "a user",
        http("PUT", "/users/ann", {"password": "a", "tags": "management,monitoring"}),
        ("user.created", "user.tags.set"),
    ),
    Act(
        "a new password",
        http("PUT", "/users/ann", {"password": "b", "tags": "management"}),
        ("user.password.changed", "user.tags.set"),
    ),
    Act(
        "a permission",
        http("PUT", "/permissions/told/ann", {"configure": ".*", "write": "w", "read": ""}),
        ("permission.created",),
    ),
    Act(
        "a topic permission",
        http("PUT", "/topic-permissions/told/ann", {"exchange": "amq.topic", "write": "w", "read": "r"}),
        ("topic.permission.created",),
    ),
    Act("no topic permission", http("DELETE", "/topic-permissions/told/ann"), ("topic.permission.deleted",)),
    Act("no permission", http("DELETE", "/permissions/told/ann"), ("permission.deleted",)),
    Act("a user's limit", http("PUT", "/user-limits/ann/max-channels", {"value": 7}), ("user.limits.set",)),
    Act("no limit", http("DELETE", "/user-limits/ann/max-channels"), ("user.limits.cleared",)),
    Act(
        "a limit of a virtual host",
        http("PUT", "/vhost-limits/told/max-queues", {"value": 7}),
        ("parameter.set", "vhost.limits.set"),
    ),
    Act(
        "no such limit",
        http("DELETE", "/vhost-limits/told/max-queues"),
        (),
        theirs=("parameter.set", "vhost.limits.set"),
        ours=("parameter.cleared", "vhost.limits.cleared"),
        why=EMPTY_LIMITS,
    ),
    Act("a policy", http("PUT", "/policies/%2F/held", HELD), ("policy.set",)),
    Act("no policy", http("DELETE", "/policies/%2F/held"), ("policy.cleared",)),
    Act("an operator policy", http("PUT", "/operator-policies/%2F/cap", HELD), ("parameter.set", "policy.set")),
    Act(
        "no operator policy",
        http("DELETE", "/operator-policies/%2F/cap"),
        ("parameter.cleared", "operator.policy.cleared"),
    ),
    Act(
        "a global parameter",
        http(
            "PUT", "/global-parameters/labels", {"value": {"site": "north", "rack": 4, "list": [1, "a"], "on": True}}
        ),
        ("parameter.set",),
    ),
    Act(
        "no global parameter",
        http("DELETE", "/global-parameters/labels"),
        (),
        theirs=("parameter.set",),
        ours=("parameter.cleared",),
        why="RabbitMQ tells the end of a global parameter as one that is set, without a value",
    ),
    Act(
        "a queue over HTTP",
        http("PUT", "/queues/told/qh", {"durable": True, "arguments": {"x-max-length": 3}}),
        ("queue.created",),
    ),
    Act("it goes over HTTP", http("DELETE", "/queues/told/qh"), ("queue.deleted",)),
    Act("a user goes", http("DELETE", "/users/ann"), ("user.deleted",)),
    Act(
        "a virtual host goes",
        http("DELETE", "/vhosts/told"),
        ("vhost.deleted", "permission.deleted", *["exchange.deleted"] * PREDECLARED),
        theirs=(
            "exchange.deleted",
            *STEPS_OF_A_DELETION * (PREDECLARED + 1),
            *("parameter.cleared", "vhost.limits.cleared", "vhost.down"),
        ),
        why=f"the default exchange, steps of RabbitMQ's own, and {EMPTY_LIMITS}",
    ),
]
