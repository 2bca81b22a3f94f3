"""The same on both brokers: virtual hosts, users, queues, exchanges, bindings, policies, clients with messages.

What comes in: one broker. What goes out: the broker with all of it, and the names of its connection and channels.
Rules: made by the requests that are compared, in this order, so that their answers are compared too.
Not here: the comparison (`compare.py`).
"""

from __future__ import annotations

import time

from tests.admin.both_brokers import Side

V = "/vhosts/compared"
MADE: list[tuple[str, str, object]] = [
    ("PUT", V, {"description": "for a comparison", "tags": "one,two"}),
    ("PUT", "/vhosts/empty", {}),
    ("PUT", "/users/ann", {"password": "ann", "tags": "monitoring"}),
    ("PUT", "/users/bea", {"password": "bea", "tags": "management"}),
    ("PUT", "/users/cleo", {"password": "cleo", "tags": "policymaker,other"}),
    ("PUT", "/users/dan", {"password_hash": "", "tags": ""}),
    ("PUT", "/permissions/compared/bea", {"configure": "^bea", "write": ".*", "read": ""}),
    ("PUT", "/permissions/%2F/cleo", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("PUT", "/topic-permissions/compared/bea", {"exchange": "amq.topic", "write": "^a", "read": ".*"}),
    ("PUT", "/topic-permissions/compared/bea", {"exchange": "news", "write": "^b", "read": ".*"}),
    ("PUT", "/vhost-limits/compared/max-queues", {"value": 100}),
    ("PUT", "/vhost-limits/compared/max-connections", {"value": 50}),
    ("PUT", "/user-limits/bea/max-channels", {"value": 7}),
    ("PUT", "/global-parameters/labels", {"value": {"site": "north", "rack": 4}}),
    ("PUT", "/policies/compared/short", {"pattern": "^held", "definition": {"max-length": 50}, "apply-to": "queues"}),
    ("PUT", "/policies/compared/aside", {"pattern": "^news", "definition": {"alternate-exchange": "amq.fanout"}}),
    (
        "PUT",
        "/operator-policies/compared/cap",
        {"pattern": "^held", "definition": {"expires": 3600000}, "priority": 3, "apply-to": "queues"},
    ),
    ("PUT", "/exchanges/compared/news", {"type": "topic", "durable": True}),
    ("PUT", "/exchanges/compared/fan", {"type": "fanout", "durable": False}),
    ("PUT", "/exchanges/compared/inner", {"type": "headers", "internal": True, "durable": True}),
    ("PUT", "/exchanges/compared/brief", {"type": "direct", "auto_delete": True, "durable": True}),
    ("PUT", "/exchanges/compared/hashed", {"type": "x-consistent-hash", "arguments": {"hash-header": "id"}}),
    ("PUT", "/exchanges/compared/other", {"type": "direct", "arguments": {"alternate-exchange": "fan"}}),
    ("PUT", "/queues/compared/plain", {"durable": True}),
    ("PUT", "/queues/compared/passing", {"durable": False}),
    ("PUT", "/queues/compared/fleeting", {"auto_delete": True, "durable": True}),
    (
        "PUT",
        "/queues/compared/held",
        {"durable": True, "arguments": {"x-max-length": 9, "x-overflow": "reject-publish"}},
    ),
    ("PUT", "/queues/compared/ranked", {"durable": True, "arguments": {"x-max-priority": 4}}),
    ("PUT", "/queues/compared/single", {"durable": True, "arguments": {"x-single-active-consumer": True}}),
    (
        "PUT",
        "/queues/compared/dying",
        {"arguments": {"x-message-ttl": 60000000, "x-dead-letter-exchange": "fan", "x-dead-letter-routing-key": "d"}},
    ),
    ("PUT", "/queues/compared/idle", {"arguments": {"x-expires": 36000000, "x-queue-mode": "lazy"}}),
    (
        "PUT",
        "/queues/compared/sure",
        {"durable": True, "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 5}},
    ),
    ("PUT", "/queues/compared/busy", {"durable": True}),
    ("POST", "/bindings/compared/e/news/q/plain", {"routing_key": "a.*.#"}),
    ("POST", "/bindings/compared/e/news/q/plain", {"routing_key": "b/c", "arguments": {"x": 1, "y": "z"}}),
    ("POST", "/bindings/compared/e/news/e/fan", {"routing_key": ""}),
    ("POST", "/bindings/compared/e/fan/q/passing", {}),
    *(("POST", "/bindings/compared/e/other/q/plain", {"routing_key": key}) for key in ("", "~", "%7E", "a b", "a+b")),
    ("POST", "/bindings/compared/e/inner/q/held", {"arguments": {"x-match": "any", "k": "v"}}),
    ("POST", "/bindings/compared/e/hashed/q/busy", {"routing_key": "3"}),
]
PUBLISHED = {"properties": {"delivery_mode": 2, "headers": {"h": 1}}, "payload_encoding": "string"}
MESSAGES: list[tuple[str, str, object]] = [
    ("POST", "/exchanges/compared//publish", {**PUBLISHED, "routing_key": "plain", "payload": "one"}),
    ("POST", "/exchanges/compared/news/publish", {**PUBLISHED, "routing_key": "a.b", "payload": "three"}),
    ("POST", "/exchanges/compared/other/publish", {**PUBLISHED, "routing_key": "nowhere", "payload": "x"}),
    (
        "POST",
        "/queues/compared/plain/get",
        {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 50000},
    ),
    (
        "POST",
        "/queues/compared/plain/get",
        {"count": 5, "ackmode": "reject_requeue_true", "encoding": "base64"},
    ),
]


FAN_OUT, FANNED_OUT = 10, 3


def make_clients(side: Side) -> None:
    """One connection with three channels: a publisher with confirms, also to an exchange from which ten queues have
    each message; a consumer that has two messages it has not acknowledged, one with transactions; one more connection
    that does nothing."""
    connection = side.connect({"product": "comparison", "connection_name": "compared"}, "compared")
    publisher = connection.channel()
    publisher.confirm_delivery()
    for number in range(5):
        publisher.basic_publish("", "busy", b"x" * 10, pika_persistent() if number % 2 else None)
    publisher.exchange_declare("wide", "fanout")
    for number in range(FAN_OUT):
        publisher.queue_declare(f"wide-{number}", durable=True)
        publisher.queue_bind(f"wide-{number}", "wide")
    for _ in range(FANNED_OUT):
        publisher.basic_publish("wide", "", b"y" * 10)
    consumer = connection.channel()
    consumer.basic_qos(prefetch_count=2)
    consumer.basic_consume("busy", lambda *_: None, consumer_tag="first", arguments={"x-priority": 4})
    consumer.basic_consume("single", lambda *_: None, consumer_tag="active")
    consumer.basic_consume("single", lambda *_: None, consumer_tag="waits")
    consumer.basic_consume("fleeting", lambda *_: None, consumer_tag="alone", auto_ack=True, exclusive=True)
    transacted = connection.channel()
    transacted.tx_select()
    transacted.basic_get("ranked", auto_ack=True)
    side.connect({"product": "comparison"})
    connection.process_data_events(time_limit=0.2)


def pika_persistent():
    import pika

    return pika.BasicProperties(delivery_mode=2, timestamp=1_700_000_000)


def wait_known(side: Side, deadline_s: float = 30) -> None:
    """Until the API knows of all of it: RabbitMQ's statistics come later than what they are of. Then `names` has the
    connection and a channel."""
    until = time.monotonic() + deadline_s
    while True:
        busy = side.ask("GET", "/queues/compared/busy").json()
        rows = side.ask("GET", "/connections").json()
        named = [each for each in rows if each.get("user_provided_name") == "compared"]
        idle = [each for each in rows if not each.get("user_provided_name")]
        known = (
            busy.get("messages_unacknowledged") == 2
            and busy.get("message_stats", {}).get("publish") == 5
            and len(busy.get("consumer_details", ())) == 1
            and side.ask("GET", "/queues/compared/plain").json().get("messages") == 2
            and len(side.ask("GET", "/channels").json()) == 3
            and side.ask("GET", "/exchanges/compared/wide").json().get("message_stats", {}).get("publish_out")
            == FAN_OUT * FANNED_OUT
        )
        if known and named and idle:
            name = str(named[0]["name"]).replace(" ", "%20")
            side.names |= {"connection": name, "idle": str(idle[0]["name"]).replace(" ", "%20")}
            for number, what in enumerate(("publisher", "consumer", "transacted"), 1):
                side.names[what] = f"{name}%20({number})"
            return
        assert time.monotonic() < until, (side.broker.product, busy, rows)
        time.sleep(0.3)
