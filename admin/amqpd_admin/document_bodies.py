"""What a request's body may say, for the OpenAPI document: as RabbitMQ names it.

What comes in: nothing. What goes out: a schema for each route that reads a body.
Rules: bodies are read as RabbitMQ reads them, by hand and with its refusals (`bodies.py`), so FastAPI does not know
them; a test holds this table against the routes.
Not here: the document (`document.py`).

Source: https://www.rabbitmq.com/docs/http-api-reference.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "integer"}
TABLE: Schema = {"type": "object"}
TEXTS: Schema = {"type": "array", "items": TEXT}
ANYTHING: Schema = {}


def one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def members(*required: str, **kinds: Schema) -> Schema:
    found: Schema = {"type": "object", "properties": {name.replace("__", "-"): kind for name, kind in kinds.items()}}
    return {**found, "required": list(required)} if required else found


ACKMODES = one_of("ack_requeue_true", "reject_requeue_true", "ack_requeue_false", "reject_requeue_false")
PERMISSIONS = members("configure", "write", "read", configure=TEXT, write=TEXT, read=TEXT)
TOPICS = members("exchange", "write", "read", exchange=TEXT, write=TEXT, read=TEXT)
POLICY = members(
    *("pattern", "definition"),
    pattern=TEXT,
    definition=TABLE,
    priority=NUMBER,
    apply__to=one_of("all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges"),
)
LIMIT = members("value", value=NUMBER)
REQUEST = {
    "ids": {"type": "array", "items": {"type": "array", "items": NUMBER}},
    "from": NUMBER,
    "count": NUMBER,
    "message_id": TEXT,
    "headers": {"type": "array", "items": {"type": "array"}},
    "all": FLAG,
    "yes": FLAG,
}

BODIES: dict[tuple[str, str], Schema] = {
    ("put", "/queues/{vhost}/{name}"): members(durable=FLAG, auto_delete=FLAG, arguments=TABLE, node=TEXT),
    ("post", "/queues/{vhost}/{name}/get"): members(
        *("count", "ackmode", "encoding"),
        count=NUMBER,
        ackmode=ACKMODES,
        encoding=one_of("auto", "base64"),
        truncate=NUMBER,
    ),
    ("post", "/queues/{vhost}/{name}/actions"): members("action", action=one_of("sync", "cancel_sync")),
    ("put", "/exchanges/{vhost}/{name}"): members(
        "type", type=TEXT, durable=FLAG, auto_delete=FLAG, internal=FLAG, arguments=TABLE
    ),
    ("post", "/exchanges/{vhost}/{name}/publish"): members(
        *("properties", "routing_key", "payload", "payload_encoding"),
        properties=TABLE,
        routing_key=TEXT,
        payload=TEXT,
        payload_encoding=one_of("string", "base64"),
    ),
    ("post", "/bindings/{vhost}/e/{source}/{kind}/{destination}"): members(routing_key=TEXT, arguments=TABLE),
    ("put", "/vhosts/{vhost}"): members(description=TEXT, tags=TEXT, tracing=FLAG, default_queue_type=TEXT),
    ("put", "/users/{name}"): members(
        "tags", password=TEXT, password_hash=TEXT, hashing_algorithm=TEXT, tags={"anyOf": [TEXT, TEXTS]}
    ),
    ("post", "/users/bulk-delete"): members("users", users=TEXTS),
    ("put", "/permissions/{vhost}/{user}"): PERMISSIONS,
    ("put", "/topic-permissions/{vhost}/{user}"): TOPICS,
    ("put", "/topic-permissions/{vhost}/{user}/{exchange}"): TOPICS,
    ("put", "/policies/{vhost}/{name}"): POLICY,
    ("put", "/operator-policies/{vhost}/{name}"): POLICY,
    ("put", "/parameters/{component}/{vhost}/{name}"): members("value", value=ANYTHING),
    ("put", "/global-parameters/{name}"): members("value", value=ANYTHING),
    ("put", "/cluster-name"): members("name", name=TEXT),
    ("put", "/vhost-limits/{vhost}/{limit}"): LIMIT,
    ("put", "/user-limits/{user}/{limit}"): LIMIT,
    ("post", "/definitions"): TABLE,
    ("post", "/definitions/{vhost}"): TABLE,
    ("post", "/amqpd/definitions/plan"): TABLE,
    ("post", "/amqpd/control/{command}"): TABLE,
    ("post", "/amqpd/definitions/apply"): TABLE,
    ("post", "/all-configuration"): TABLE,
    ("post", "/amqpd/messages/{vhost}/{name}/delete"): {"type": "object", "properties": REQUEST},
    ("post", "/amqpd/messages/{vhost}/{name}/move"): {
        "type": "object",
        "properties": {**REQUEST, "to_queue": TEXT, "to_vhost": TEXT},
        "required": ["to_queue"],
    },
}
BODILESS = {
    ("post", "/vhosts/{vhost}/start/{name}"),
    ("post", "/vhosts/{vhost}/deletion/protection"),
    ("post", "/rebalance/queues"),
    ("put", "/feature-flags/{name}/enable"),
}
"""changes that read none"""
LOG_INS = {("post", "/amqpd/session"), ("post", "/login")}
"""these read a form of their own"""
