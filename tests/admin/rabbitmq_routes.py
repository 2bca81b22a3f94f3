"""All routes of RabbitMQ's management API, and which of them amqpd has.

What comes in: nothing. What goes out: paths and methods; for those that amqpd has not, why.
Rules: HEAD and OPTIONS are not listed: each route has them, where RabbitMQ's has.
Not here: whether the answers are equal (`compare.py`).

Source: rabbit_mgmt_dispatcher.erl and each rabbit_mgmt_wm_*.erl of RabbitMQ 4.3; of its plugins, the dispatchers of
rabbitmq_shovel_management, rabbitmq_federation_management and rabbitmq_stream_management.
"""

from __future__ import annotations

from typing import NamedTuple


class Route(NamedTuple):
    """`why`: it is not there. Empty: it is."""

    path: str
    methods: str
    why: str = ""


ETS = "Erlang's tables"
QUORUM = "`amqpd queue` commands do it"
SESSIONS = "sessions are of AMQP 1.0"
OWNER = "who declared a queue is not kept"
TERMS = "Erlang terms"
HASH = "a password in a URL stands in logs"
RESET = "there is no statistics database"
PLUGIN = "no link or shovel runs here"
STREAM = "the stream protocol is not spoken"

MANAGEMENT = [
    Route("/overview", "GET"),
    Route("/cluster-name", "GET PUT"),
    Route("/nodes", "GET"),
    Route("/nodes/{node}", "GET"),
    Route("/nodes/{node}/memory", "GET"),
    Route("/nodes/{node}/memory/relative", "GET"),
    Route("/nodes/{node}/memory/ets", "GET", ETS),
    Route("/nodes/{node}/memory/ets/relative", "GET", ETS),
    Route("/nodes/{node}/memory/ets/{filter}", "GET", ETS),
    Route("/nodes/{node}/memory/ets/{filter}/relative", "GET", ETS),
    Route("/extensions", "GET"),
    Route("/all-configuration", "GET POST"),
    Route("/definitions", "GET POST"),
    Route("/definitions/{vhost}", "GET POST"),
    Route("/parameters", "GET"),
    Route("/parameters/{component}", "GET"),
    Route("/parameters/{component}/{vhost}", "GET"),
    Route("/parameters/{component}/{vhost}/{name}", "GET PUT DELETE"),
    Route("/global-parameters", "GET"),
    Route("/global-parameters/{name}", "GET PUT DELETE"),
    Route("/policies", "GET"),
    Route("/policies/{vhost}", "GET"),
    Route("/policies/{vhost}/{name}", "GET PUT DELETE"),
    Route("/operator-policies", "GET"),
    Route("/operator-policies/{vhost}", "GET"),
    Route("/operator-policies/{vhost}/{name}", "GET PUT DELETE"),
    Route("/vhost-limits/{vhost}/{name}", "PUT DELETE"),
    Route("/vhost-limits", "GET"),
    Route("/vhost-limits/{vhost}", "GET"),
    Route("/connections", "GET"),
    Route("/connections/{connection}", "GET DELETE"),
    Route("/connections/username/{username}", "GET DELETE"),
    Route("/connections/{connection}/channels", "GET"),
    Route("/connections/{connection}/sessions", "GET", SESSIONS),
    Route("/channels", "GET"),
    Route("/channels/{channel}", "GET"),
    Route("/consumers", "GET"),
    Route("/consumers/{vhost}", "GET"),
    Route("/exchanges", "GET"),
    Route("/exchanges/{vhost}", "GET"),
    Route("/exchanges/{vhost}/{exchange}", "GET PUT DELETE"),
    Route("/exchanges/{vhost}/{exchange}/publish", "POST"),
    Route("/exchanges/{vhost}/{exchange}/bindings/source", "GET"),
    Route("/exchanges/{vhost}/{exchange}/bindings/destination", "GET"),
    Route("/queues", "GET"),
    Route("/queues/detailed", "GET"),
    Route("/queues/{vhost}", "GET"),
    Route("/queues/{vhost}/{queue}", "GET PUT DELETE"),
    Route("/queues/{vhost}/{destination}/bindings", "GET"),
    Route("/queues/{vhost}/{queue}/contents", "DELETE"),
    Route("/queues/{vhost}/{queue}/get", "POST"),
    Route("/queues/{vhost}/{queue}/actions", "POST"),
    Route("/queues/quorum/{vhost}/{queue}/replicas/add", "POST", QUORUM),
    Route("/queues/quorum/{vhost}/{queue}/replicas/delete", "DELETE", QUORUM),
    Route("/queues/quorum/replicas/on/{node}/grow", "POST", QUORUM),
    Route("/queues/quorum/replicas/on/{node}/shrink", "DELETE", QUORUM),
    Route("/queues/quorum/{vhost}/{queue}/status", "GET", QUORUM),
    Route("/bindings", "GET"),
    Route("/bindings/{vhost}", "GET"),
    Route("/bindings/{vhost}/e/{source}/{dtype}/{destination}", "GET POST"),
    Route("/bindings/{vhost}/e/{source}/{dtype}/{destination}/{props}", "GET DELETE"),
    Route("/vhosts", "GET"),
    Route("/vhosts/{vhost}", "GET PUT DELETE"),
    Route("/vhosts/{vhost}/deletion/protection", "GET POST DELETE"),
    Route("/vhosts/{vhost}/start/{node}", "POST"),
    Route("/vhosts/{vhost}/permissions", "GET"),
    Route("/vhosts/{vhost}/topic-permissions", "GET"),
    Route("/vhosts/{vhost}/connections", "GET"),
    Route("/vhosts/{vhost}/channels", "GET"),
    Route("/users/bulk-delete", "POST"),
    Route("/users/without-permissions", "GET"),
    Route("/users", "GET"),
    Route("/users/{user}", "GET PUT DELETE"),
    Route("/users/{user}/permissions", "GET"),
    Route("/users/{user}/topic-permissions", "GET"),
    Route("/users/{user}/queues", "GET", OWNER),
    Route("/user-limits/{user}/{name}", "PUT DELETE"),
    Route("/user-limits", "GET"),
    Route("/user-limits/{user}", "GET"),
    Route("/feature-flags", "GET"),
    Route("/feature-flags/{name}/enable", "PUT"),
    Route("/deprecated-features", "GET"),
    Route("/deprecated-features/used", "GET"),
    Route("/whoami", "GET"),
    Route("/permissions", "GET"),
    Route("/permissions/{vhost}/{user}", "GET PUT DELETE"),
    Route("/topic-permissions", "GET"),
    Route("/topic-permissions/{vhost}/{user}", "GET PUT DELETE"),
    Route("/topic-permissions/{vhost}/{user}/{exchange}", "GET PUT DELETE"),
    Route("/aliveness-test/{vhost}", "GET"),
    Route("/healthchecks/node", "GET"),
    Route("/healthchecks/node/{node}", "GET"),
    Route("/health/checks/alarms", "GET"),
    Route("/health/checks/local-alarms", "GET"),
    Route("/health/checks/metadata-store/initialized", "GET"),
    Route("/health/checks/metadata-store/initialized/with-data", "GET"),
    Route("/health/checks/certificate-expiration/{within}/{unit}", "GET"),
    Route("/health/checks/port-listener/{port}", "GET"),
    Route("/health/checks/protocol-listener/{protocols}", "GET"),
    Route("/health/checks/virtual-hosts", "GET"),
    Route("/health/checks/quorum-queues-without-elected-leaders/all-vhosts", "GET"),
    Route("/health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}", "GET"),
    Route("/health/checks/quorum-queues-without-elected-leaders/all-vhosts/pattern/{pattern}", "GET"),
    Route("/health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}/pattern/{pattern}", "GET"),
    Route("/health/checks/node-is-quorum-critical", "GET"),
    Route("/health/checks/is-in-service", "GET"),
    Route("/health/checks/below-node-connection-limit", "GET"),
    Route("/health/checks/ready-to-serve-clients", "GET"),
    Route("/health/checks/reached-target-cluster-size", "GET"),
    Route("/reset", "DELETE", RESET),
    Route("/reset/{node}", "DELETE", RESET),
    Route("/rebalance/queues", "POST"),
    Route("/auth/attempts/{node}", "GET DELETE"),
    Route("/auth/attempts/{node}/source", "GET DELETE"),
    Route("/login", "POST DELETE"),
    Route("/config/effective", "GET", TERMS),
    Route("/auth/hash_password/{password}", "GET", HASH),
    Route("/version", "GET"),
]
PLUGINS = [
    Route("/shovels", "GET"),
    Route("/shovels/{vhost}", "GET"),
    Route("/shovels/vhost/{vhost}/{name}/restart", "DELETE", PLUGIN),
    Route("/federation-links", "GET"),
    Route("/federation-links/{vhost}", "GET"),
    Route("/federation-links/state/down", "GET"),
    Route("/federation-links/{vhost}/state/down", "GET"),
    Route("/federation-links/vhost/{vhost}/{id}/{node}/restart", "DELETE", PLUGIN),
    Route("/stream/connections", "GET"),
    Route("/stream/connections/{vhost}", "GET"),
    Route("/stream/connections/{vhost}/{connection}", "GET DELETE", STREAM),
    Route("/stream/connections/{vhost}/{connection}/consumers", "GET", STREAM),
    Route("/stream/connections/{vhost}/{connection}/publishers", "GET", STREAM),
    Route("/stream/consumers", "GET"),
    Route("/stream/consumers/{vhost}", "GET"),
    Route("/stream/publishers", "GET"),
    Route("/stream/publishers/{vhost}", "GET"),
    Route("/stream/publishers/{vhost}/{queue}", "GET"),
    Route("/stream/super-streams/{vhost}/{name}", "PUT", STREAM),
    Route("/stream/{vhost}/{queue}/tracking", "GET", STREAM),
    Route("/shovels/vhost/{vhost}/{name}", "GET"),
    Route("/shovels/vhost/{vhost}/{name}", "DELETE", PLUGIN),
]
ROUTES = MANAGEMENT + PLUGINS
