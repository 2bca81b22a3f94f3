"""Every command of rabbitmqadmin's help, in an order in which all of them have something to do.

What comes in: nothing. What goes out: command lines; `{connection}` and `{file}` stand for each broker's own.
Rules: a line's whole output has to be the same text from both.
Not here: the comparison (`test_rabbitmqadmin.py`).
"""

from __future__ import annotations

_IN = "-V told "
WRITTEN = [
    "declare vhost name=told tracing=false",
    "declare user name=tess password=secret tags=management",
    "declare permission vhost=told user=tess configure=.* write=.* read=.*",
    _IN + "declare exchange name=tales type=topic durable=true auto_delete=false internal=false",
    _IN + 'declare exchange name=other type=direct arguments={"alternate-exchange":"tales"}',
    _IN + "declare queue name=ears durable=true auto_delete=false",
    _IN + 'declare queue name=short durable=true arguments={"x-max-length":3}',
    _IN + "declare queue name=sure durable=true queue_type=quorum",
    _IN + "declare binding source=tales destination=ears routing_key=once.#",
    _IN + 'declare binding source=tales destination=other destination_type=exchange arguments={"a":1}',
    _IN + 'declare policy name=low pattern=^e definition={"max-length":9} priority=2 apply-to=queues',
    _IN + 'declare operator_policy name=cap pattern=^e definition={"expires":900000} apply-to=queues',
    "declare vhost_limit vhost=told name=max-queues value=7",
    _IN + "publish exchange=tales routing_key=once.upon payload=wolf",
    _IN + "publish exchange=tales routing_key=never payload=x",
    _IN
    + 'publish exchange=amq.default routing_key=short payload=eA== payload_encoding=base64 properties={"priority":1}',
    _IN + "get queue=ears ackmode=ack_requeue_true",
    _IN + "get queue=ears count=2 ackmode=reject_requeue_true encoding=base64",
    _IN + "get queue=short ackmode=ack_requeue_false",
    _IN + "get queue=short",
]
LISTED = [
    _IN + "list exchanges name type durable auto_delete internal arguments policy",
    _IN + "list queues name durable auto_delete exclusive arguments type policy",
    _IN + "list queues name messages messages_ready messages_unacknowledged sort=name",
    _IN + "list bindings source destination destination_type routing_key arguments",
    "list users name tags",
    "list vhosts name tracing",
    "list permissions user vhost configure write read",
    "list parameters component name vhost value --vhost=told",
    "list policies name pattern definition priority apply-to vhost",
    "list operator_policies name pattern definition priority apply-to vhost",
    "list vhost_limits",
    "list nodes running type",
    "list connections user vhost state channels protocol",
    "list channels number user vhost consumer_count prefetch_count confirm transactional",
    "list consumers consumer_tag queue.name ack_required exclusive prefetch_count",
    "show overview object_totals.queues object_totals.exchanges object_totals.consumers queue_totals.messages",
]
RAW = {
    "list connections": "/connections",
    "list channels": "/channels",
    "list consumers": "/consumers",
    "list exchanges": "/exchanges",
    "list queues": "/queues",
    "list bindings": "/bindings",
    "list users": "/users",
    "list vhosts": "/vhosts",
    "list permissions": "/permissions",
    "list nodes": "/nodes",
    "list parameters": "/parameters",
    "list policies": "/policies",
    "list operator_policies": "/operator-policies",
    "list vhost_limits": "/vhost-limits",
    "show overview": "/overview",
}
"""whole rows: of which route the reasons for differences are"""
ENDED = [
    "export {file}",
    "import {file}",
    "close connection name={connection}",
    _IN + "purge queue name=ears",
    _IN + "delete binding source=tales destination_type=queue destination=ears properties_key=once.%23",
    _IN + "delete queue name=ears",
    _IN + "delete queue name=ears",
    _IN + "delete exchange name=other",
    _IN + "delete policy name=low",
    _IN + "delete operator_policy name=cap",
    "delete vhost_limit vhost=told name=max-queues",
    "delete permission vhost=told user=tess",
    "delete user name=tess",
    "delete vhost name=told",
    "-u guest -p wrong list queues",
]
