"""What both brokers are asked: every route of RabbitMQ's that only reads, and requests that are wrong.

What comes in: nothing. What goes out: paths, in which `{node}`, `{connection}`, `{publisher}`, `{consumer}`, `{idle}`
and `{port}` stand for what each broker calls so.
Not here: what is there when they are asked (`same_topology.py`).
"""

from __future__ import annotations

_LISTS = """
/overview /cluster-name /nodes /nodes/{node} /nodes/{node}/memory /nodes/{node}/memory/relative /extensions /whoami
/all-configuration /definitions /definitions/compared /auth
/parameters /parameters/none /parameters/none/compared /parameters/none/compared/up
/global-parameters /global-parameters/labels
/policies /policies/compared /policies/compared/short
/operator-policies /operator-policies/compared /operator-policies/compared/cap
/vhost-limits /vhost-limits/compared /vhost-limits/empty /user-limits /user-limits/bea
/connections /connections/{connection} /connections/{idle} /connections/{connection}/channels
/channels /channels/{publisher} /channels/{consumer} /channels/{transacted} /consumers /consumers/compared
/exchanges /exchanges/compared /exchanges/compared/news /exchanges/compared/amq.default /exchanges/compared/inner
/exchanges/compared/wide /queues/compared/wide-3
/exchanges/compared/other /exchanges/compared/news/bindings/source /exchanges/compared/fan/bindings/destination
/exchanges/compared/amq.default/bindings/source /exchanges/compared// /exchanges/compared//bindings/source
/exchanges/compared/ /users/ /vhosts/ /queues/compared/plain/ /bindings/compared/e//q/plain
/bindings/compared/e/news/q/plain/a.*.%23/ /overview/?columns=object_totals.queues /whoami?columns=name
/vhosts/compared?columns=name,tracing /users/bea?columns=name /permissions/compared/bea?columns=user
/queues /queues/compared /queues/compared/busy /queues/compared/plain /queues/compared/passing /queues/compared/held
/queues/compared/ranked /queues/compared/single /queues/compared/dying /queues/compared/idle /queues/compared/fleeting
/queues/compared/sure /queues/compared/plain/bindings
/queues?page=1&page_size=3&sort=name /queues/compared?page=2&page_size=4&name=e&columns=name,messages
/queues?page=1&name=^s&use_regex=true&sort=messages&sort_reverse=true /exchanges?page=1&page_size=5
/queues?columns=name,message_stats.publish&sort=message_stats.publish /queues?sort=name&sort_reverse=true
/queues?disable_stats=true /queues?disable_stats=true&enable_queue_totals=true /connections?page=1 /channels?page=1
/queues/compared/busy?columns=name,messages /vhosts?columns=name /users?page=1&page_size=2
/bindings /bindings/compared /bindings/compared/e/news/q/plain /bindings/compared/e/news/q/plain/a.*.%23
/bindings/compared/e/amq.default/q/plain /bindings/compared/e/news/e/fan /bindings/compared/e/news/e/fan/~
/bindings/compared/e/fan/q/plain /bindings/compared/e/other/q/plain/~ /bindings/compared/e/other/q/plain/%7E
/bindings/compared/e/other/q/plain/%257E /bindings/compared/e/other/q/plain/%25257E
/bindings/compared/e/other/q/plain/a+b /bindings/compared/e/other/q/plain/a%252Bb
/vhosts /vhosts/compared /vhosts/empty /vhosts/compared/permissions /vhosts/compared/topic-permissions
/vhosts/compared/connections /vhosts/compared/channels
/users /users/bea /users/dan /users/cleo /users/without-permissions /users/bea/permissions
/users/bea/topic-permissions /permissions /permissions/compared/bea /topic-permissions
/topic-permissions/compared/bea /topic-permissions/compared/bea/news
/feature-flags /aliveness-test/compared /healthchecks/node /healthchecks/node/{node}
/health/checks/alarms /health/checks/local-alarms /health/checks/certificate-expiration/1/months
/health/checks/port-listener/{port} /health/checks/protocol-listener/amqp /health/checks/protocol-listener/amqp091
/health/checks/virtual-hosts /health/checks/node-is-quorum-critical /health/checks/node-is-mirror-sync-critical
/auth/attempts/{node} /auth/attempts/{node}/source
/federation-links /federation-links/compared /federation-links/state/down /shovels /shovels/compared
/stream/connections /stream/connections/compared /stream/consumers /stream/consumers/compared
/stream/publishers /stream/publishers/compared /stream/publishers/compared/plain /shovels/vhost/compared/none
/federation-links/compared/state/down
"""
_NEWER = """
/queues/detailed /connections/username/guest /vhosts/compared/deletion/protection /deprecated-features
/deprecated-features/used /version /health/checks/is-in-service /health/checks/ready-to-serve-clients
/health/checks/below-node-connection-limit /health/checks/metadata-store/initialized
/health/checks/metadata-store/initialized/with-data /health/checks/reached-target-cluster-size
/health/checks/quorum-queues-without-elected-leaders/all-vhosts
/health/checks/quorum-queues-without-elected-leaders/vhost/compared
/health/checks/quorum-queues-without-elected-leaders/all-vhosts/pattern/s
/health/checks/quorum-queues-without-elected-leaders/vhost/compared/pattern/s
"""
_WRONG = """
/queues/compared/none /queues/none /queues/none/none /exchanges/compared/none /exchanges/none /users/none
/vhosts/none /vhosts/none/permissions /vhosts/none/connections /permissions/compared/none /permissions/none/bea
/permissions/compared/cleo /topic-permissions/compared/cleo /policies/compared/none /policies/none
/operator-policies/none /operator-policies/compared/none /parameters/none /parameters/none/compared/x
/parameters/federation-upstream/none /global-parameters/none /connections/none /connections/none/channels
/channels/none /consumers/none /bindings/none /bindings/compared/e/news/q/plain/none
/bindings/compared/e/none/q/plain /exchanges/compared/none/bindings/source /queues/compared/none/bindings
/nodes/none /nodes/none/memory /users/none/permissions /definitions/none /vhost-limits/none /user-limits/none
/healthchecks/node/none /aliveness-test/none /health/checks/port-listener/1
/health/checks/protocol-listener/none /health/checks/port-listener/x /queues?page=0 /queues?page=x
/queues?page=99 /queues?page=1&page_size=501 /queues?page=1&page_size=0 /queues?page=1&use_regex=true&name=(
/federation-links/none /shovels/none /auth/attempts/none /queues/compared?page=-1
/health/checks/certificate-expiration/x/months /health/checks/certificate-expiration/1/ages
/overview?lengths_age=-1&lengths_incr=5 /queues?msg_rates_age=30&msg_rates_incr=0
/channels?data_rates_age=0&data_rates_incr=1
/queues/compared/busy?lengths_age=3600&lengths_incr=5 /nodes?node_stats_age=30&node_stats_incr=-5
/connections?data_rates_age=-30&data_rates_incr=-5 /exchanges?msg_rates_age=9999&msg_rates_incr=1
/vhosts/compared?lengths_age=0&lengths_incr=0 /queues/compared/busy?lengths_age=x&lengths_incr=5
"""
_MINUTE = "&".join(f"{each}_age=60&{each}_incr=5" for each in ("lengths", "msg_rates", "data_rates", "node_stats"))
_SAMPLED = """
/overview? /nodes/{node}? /nodes? /queues/compared/busy? /queues/compared/idle? /queues/compared?page=1&name=bus&
/vhosts/compared? /vhosts? /connections/{connection}? /connections? /channels/{publisher}? /channels?
/exchanges/compared/news? /exchanges/compared?
"""
READ: list[str] = _LISTS.split() + [f"{path}{_MINUTE}" for path in _SAMPLED.split()]
"""as guest, an administrator; the last ones with samples"""

NEWER: list[str] = _NEWER.split()
"""that RabbitMQ 3.10 does not have: only whether they answer is looked at"""

_IN = {"vhost": "compared", "name": "new", "durable": True, "auto_delete": False, "arguments": {}}
_NOWHERE = {"destination": "none", "destination_type": "queue", "routing_key": ""}
_ALL = {"configure": ".*", "write": ".*", "read": ".*"}
_IMPOSSIBLE: list[object] = [
    {"queues": [{**_IN, "arguments": {"x-message-ttl": "60000"}}]},
    {"queues": [{**_IN, "arguments": {"x-queue-type": "none"}}]},
    {"queues": [{**_IN, "auto_delete": True, "arguments": {"x-queue-type": "quorum"}}]},
    {"queues": [{**_IN, "vhost": "none"}]},
    {"exchanges": [{**_IN, "type": "x-none", "internal": False}]},
    {"exchanges": [{**_IN, "vhost": "none", "type": "direct", "internal": False}]},
    {"policies": [{**_IN, "pattern": "^none$", "definition": {"none": 1}, "priority": 0, "apply-to": "all"}]},
    {"permissions": [{**_ALL, "vhost": "compared", "user": "none"}]},
    {"permissions": [{**_ALL, "vhost": "none", "user": "bea"}]},
    {"parameters": [{"vhost": "compared", "component": "none", "name": "new", "value": {}}]},
]
"""documents of which RabbitMQ says that they cannot be made"""

Q = "/queues/compared"
WRONG: list[tuple[str, str, object, str]] = [
    ("GET", "/whoami", None, ""),
    ("GET", "/whoami", None, "nobody-of-this-name"),
    ("GET", "/whoami", None, "dan"),
    ("GET", "/nowhere", None, "guest"),
    *(("GET", path, None, "guest") for path in _WRONG.split()),
    ("PUT", "/queues/compared/plain", {"durable": False}, "guest"),
    ("PUT", "/queues/compared/held", {"durable": True, "arguments": {"x-max-length": 10}}, "guest"),
    ("PUT", "/queues/compared/new", {"arguments": {"x-max-length": -1}}, "guest"),
    ("PUT", "/queues/compared/new", {"durable": "maybe"}, "guest"),
    ("PUT", "/queues/compared/new", {"arguments": 4}, "guest"),
    ("PUT", "/queues/compared/amq.mine", {}, "guest"),
    ("PUT", "/queues/none/new", {}, "guest"),
    ("PUT", "/queues/compared/new", {}, "bea"),
    ("PUT", "/queues/%2F/new", {}, "bea"),
    ("DELETE", "/queues/compared/none", None, "guest"),
    ("DELETE", "/queues/compared/plain?if-empty=true", None, "guest"),
    ("DELETE", "/queues/compared/busy?if-unused=true", None, "guest"),
    ("DELETE", "/queues/compared/none/contents", None, "guest"),
    ("POST", "/queues/compared/none/get", {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}, "guest"),
    ("POST", Q + "/plain/get", {}, "guest"),
    ("POST", Q + "/plain/get", {"count": 1, "ackmode": "none", "encoding": "auto"}, "guest"),
    ("POST", Q + "/plain/get", {"count": 1, "ackmode": "ack_requeue_true", "encoding": "none"}, "guest"),
    ("POST", Q + "/plain/get", {"count": "x", "ackmode": "ack_requeue_true", "encoding": "auto"}, "guest"),
    ("POST", Q + "/plain/actions", {"action": "none"}, "guest"),
    ("POST", Q + "/none/actions", {"action": "sync"}, "guest"),
    ("PUT", "/exchanges/compared/news", {"type": "direct"}, "guest"),
    ("PUT", "/exchanges/compared/new", {"type": "unheard"}, "guest"),
    ("PUT", "/exchanges/compared/amq.mine", {"type": "direct"}, "guest"),
    ("PUT", "/exchanges/compared/new", {"type": "direct", "arguments": []}, "guest"),
    ("DELETE", "/exchanges/compared/none", None, "guest"),
    ("DELETE", "/exchanges/compared/news?if-unused=true", None, "guest"),
    ("DELETE", "/exchanges/compared/amq.topic", None, "guest"),
    ("DELETE", "/exchanges/compared/amq.default", None, "guest"),
    ("POST", "/exchanges/compared/none/publish", {}, "guest"),
    ("POST", "/exchanges/compared/news/publish", {}, "guest"),
    (
        "POST",
        "/exchanges/compared/none/publish",
        {"properties": {}, "routing_key": "", "payload": "", "payload_encoding": "string"},
        "guest",
    ),
    (
        "POST",
        "/exchanges/compared/news/publish",
        {"properties": {}, "routing_key": "", "payload": "", "payload_encoding": "none"},
        "guest",
    ),
    (
        "POST",
        "/exchanges/compared/news/publish",
        {"properties": {"priority": "high"}, "routing_key": "", "payload": "", "payload_encoding": "string"},
        "guest",
    ),
    ("POST", "/bindings/compared/e/none/q/plain", {}, "guest"),
    ("POST", "/bindings/compared/e/news/q/none", {}, "guest"),
    ("POST", "/bindings/compared/e/news/x/plain", {}, "guest"),
    ("POST", "/bindings/compared/e/amq.default/q/plain", {"routing_key": "a"}, "guest"),
    ("DELETE", "/bindings/compared/e/news/q/plain/none", None, "guest"),
    ("DELETE", "/bindings/compared/e/amq.default/q/plain/plain", None, "guest"),
    ("PUT", "/vhosts/new", None, "bea"),
    ("DELETE", "/vhosts/none", None, "guest"),
    ("DELETE", "/users/none", None, "guest"),
    ("PUT", "/users/new", {}, "guest"),
    ("PUT", "/users/new", {"tags": "x", "password": 4}, "guest"),
    ("PUT", "/users/new", {"tags": "x", "password_hash": "!"}, "guest"),
    ("PUT", "/users/new", {"tags": "x", "password": "x", "password_hash": ""}, "guest"),
    ("POST", "/users/bulk-delete", {}, "guest"),
    ("PUT", "/permissions/compared/none", {"configure": "", "write": "", "read": ""}, "guest"),
    ("PUT", "/permissions/compared/bea", {"configure": "", "write": ""}, "guest"),
    ("PUT", "/permissions/compared/bea", {"configure": "(", "write": "", "read": ""}, "guest"),
    ("PUT", "/permissions/none/bea", {"configure": "", "write": "", "read": ""}, "guest"),
    ("DELETE", "/permissions/compared/cleo", None, "guest"),
    ("PUT", "/topic-permissions/compared/bea", {"exchange": "x", "write": "("}, "guest"),
    ("PUT", "/policies/compared/new", {}, "guest"),
    ("PUT", "/policies/compared/new", {"pattern": "(", "definition": {"max-length": 1}}, "guest"),
    ("PUT", "/policies/compared/new", {"pattern": "a", "definition": {"none": 1}}, "guest"),
    ("PUT", "/policies/compared/new", {"pattern": "a", "definition": {}}, "guest"),
    ("PUT", "/policies/compared/new", {"pattern": "a", "definition": {"max-length": "x"}}, "guest"),
    ("PUT", "/policies/compared/new", {"pattern": "a", "definition": {"max-length": 1}, "apply-to": "x"}, "guest"),
    ("PUT", "/policies/compared/new", {"pattern": "a", "definition": {"max-length": 1}, "priority": "x"}, "guest"),
    ("PUT", "/policies/none/new", {"pattern": "a", "definition": {"max-length": 1}}, "guest"),
    ("PUT", "/policies/compared/new", {"pattern": "a", "definition": {"max-length": 1}}, "bea"),
    ("DELETE", "/policies/compared/none", None, "guest"),
    ("PUT", "/operator-policies/compared/new", {"pattern": "a", "definition": {"max-length": 1}}, "cleo"),
    ("PUT", "/parameters/none/compared/new", {"value": 1}, "guest"),
    ("DELETE", "/parameters/federation-upstream/compared/none", None, "guest"),
    ("PUT", "/global-parameters/new", {}, "guest"),
    ("DELETE", "/global-parameters/none", None, "guest"),
    ("PUT", "/vhost-limits/compared/none", {"value": 1}, "guest"),
    ("PUT", "/vhost-limits/compared/max-queues", {"value": "x"}, "guest"),
    ("PUT", "/vhost-limits/none/max-queues", {"value": 1}, "guest"),
    ("PUT", "/user-limits/none/max-channels", {"value": 1}, "guest"),
    ("PUT", "/user-limits/bea/none", {"value": 1}, "guest"),
    ("DELETE", "/connections/none", None, "guest"),
    ("PUT", "/cluster-name", {}, "guest"),
    ("PUT", "/feature-flags/none/enable", {}, "guest"),
    ("POST", "/definitions", {"queues": "x"}, "guest"),
    *(("POST", "/definitions", document, "guest") for document in _IMPOSSIBLE),
    ("POST", "/definitions", {"bindings": [{**_IN, "source": "news", **_NOWHERE}]}, "guest"),
    ("POST", "/rebalance/queues", None, "bea"),
    ("POST", "/overview", {}, "guest"),
    ("PUT", "/queues", {}, "guest"),
    ("DELETE", "/users", None, "guest"),
    ("GET", "/queues/compared/plain/contents", None, "guest"),
    ("GET", "/vhost-limits/compared/max-queues", None, "guest"),
    ("POST", "/queues/compared/plain", {}, "guest"),
    ("GET", "/users", None, "ann"),
    ("GET", "/nodes", None, "cleo"),
    ("GET", "/queues/%2F", None, "bea"),
    ("GET", "/policies/compared", None, "bea"),
    ("GET", "/parameters", None, "bea"),
    ("GET", "/permissions", None, "cleo"),
    ("GET", "/definitions", None, "ann"),
    ("GET", "/vhosts/empty", None, "bea"),
    ("GET", "/connections/{connection}", None, "bea"),
    ("DELETE", "/connections/{connection}", None, "ann"),
    ("GET", "/channels/{consumer}", None, "bea"),
    ("DELETE", "/auth/attempts/{node}", None, "bea"),
]
"""method, path, body, user (whose password is its name; nobody)"""

UNREADABLE = [b"{", b"[]", b'"x"', b'{"a":}', b"nothing"]
"""bodies that are no objects of JSON, of a declaration"""
