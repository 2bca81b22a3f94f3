"""The fields that RabbitMQ 4.2 has in the answers of its management API, and which of them amqpd has not.

What comes in: nothing. What goes out: for each request the fields with their types; of those left out, why.
Rules: 1. A field is `name:type`; `a.b` is in an object, `a[].b` in the rows of a list, a list's own rows begin with
`[].`. A type is text, number, boolean, list, object or any; with `?` it may be null too. 2. `message_stats` and
samples stand for themselves: each `x` of `STATS` has an `x_details`. 3. What is left out stands in docs/http.md, in
these words.
Not here: routes that are not there (`rabbitmq_routes.py`), values (`compare.py`).

Source: https://www.rabbitmq.com/docs/4.2/http-api-reference, and of RabbitMQ 4.2.9: rabbit_mgmt_wm_*.erl,
rabbit_mgmt_db.erl, rabbit_mgmt_format.erl, rabbit_mgmt_external_stats.erl, rabbit_mgmt_metrics.hrl, the keys of
rabbit_reader.erl, rabbit_channel.erl, rabbit_amqqueue_process.erl, rabbit_quorum_queue.erl, rabbit_exchange.erl,
rabbit_variable_queue.erl, vhost.erl, rabbit_vm.erl; rabbitmqctl.8.
"""

from __future__ import annotations

from typing import NamedTuple

STATS = [
    *("publish", "confirm", "return_unroutable", "drop_unroutable"),
    *("deliver", "deliver_no_ack", "get", "get_no_ack"),
    *("get_empty", "deliver_get", "redeliver", "ack"),
]
CHURN = [
    *("connection_created", "connection_closed", "channel_created", "channel_closed"),
    *("queue_declared", "queue_created", "queue_deleted"),
]


def counted(where: str, names: list[str]) -> str:
    return " ".join(f"{where}{name}:number {where}{name}_details:object" for name in names)


_OVERVIEW = f"""
management_version:text rates_mode:text sample_retention_policies:object exchange_types:list
exchange_types[].name:text exchange_types[].description:text exchange_types[].enabled:boolean product_version:text
product_name:text rabbitmq_version:text cluster_name:text cluster_tags:object node_tags:object erlang_version:text
erlang_full_version:text crypto_lib_version:text disable_stats:boolean default_queue_type:text
is_op_policy_updating_enabled:boolean enable_queue_totals:boolean message_stats:object churn_rates:object
queue_totals:object object_totals:object statistics_db_event_queue:number statistics_db_node:text node:text
listeners:list listeners[].node:text listeners[].protocol:text listeners[].ip_address:text listeners[].port:number
listeners[].tls:boolean listeners[].socket_opts:object contexts:list contexts[].node:text contexts[].description:text
contexts[].path:text contexts[].ip:text contexts[].port:text contexts[].ssl_opts:list
{counted("message_stats.", [*STATS, "disk_reads", "disk_writes"])} {counted("churn_rates.", CHURN)}
{counted("queue_totals.", ["messages", "messages_ready", "messages_unacknowledged"])}
object_totals.connections:number object_totals.channels:number object_totals.exchanges:number
object_totals.queues:number object_totals.consumers:number
"""
_IO = [
    *("io_read_count", "io_read_bytes", "io_read_avg_time", "io_write_count"),
    *("io_write_bytes", "io_write_avg_time", "io_sync_count", "io_sync_avg_time"),
    *("io_seek_count", "io_seek_avg_time", "io_reopen_count", "mnesia_ram_tx_count"),
    *(
        "mnesia_disk_tx_count",
        "msg_store_read_count",
        "msg_store_write_count",
        "queue_index_write_count",
        "queue_index_read_count",
    ),
]
_NODE = f"""
name:text type:text running:boolean being_drained:boolean partitions:list os_pid:text fd_total:number
sockets_total:number mem_limit:number mem_alarm:boolean disk_free_limit:number disk_free_alarm:boolean
proc_total:number rates_mode:text uptime:number run_queue:number processors:number exchange_types:list
auth_mechanisms:list applications:list contexts:list log_files:list db_dir:text config_files:list net_ticktime:number
enabled_plugins:list mem_calculation_strategy:text ra_open_file_metrics:object rabbitmq_version:text
erlang_version:text erlang_full_version:text crypto_lib_version:text cluster_links:list metrics_gc_queue_length:object
{counted("", ["fd_used", "sockets_used", "mem_used", "disk_free", "proc_used", "gc_num", "gc_bytes_reclaimed"])}
{counted("", ["context_switches", *CHURN, *_IO])}
"""
_MEMORY = """
connection_readers:number connection_writers:number connection_channels:number connection_other:number
queue_procs:number quorum_queue_procs:number quorum_queue_dlx_procs:number stream_queue_procs:number
stream_queue_replica_reader_procs:number stream_queue_coordinator_procs:number plugins:number metadata_store:number
other_proc:number metrics:number mgmt_db:number quorum_ets:number mnesia:number metadata_store_ets:number
other_ets:number binary:number msg_index:number code:number atom:number other_system:number allocated_unused:number
reserved_unallocated:number
"""
_CONNECTION = f"""
name:text node:text port:number peer_port:number host:text peer_host:text ssl:boolean peer_cert_subject:text?
peer_cert_issuer:text? peer_cert_serial_number:text? peer_cert_validity:text? auth_mechanism:text ssl_protocol:text?
ssl_key_exchange:text? ssl_cipher:text? ssl_hash:text? protocol:text user:text vhost:text timeout:number
frame_max:number channel_max:number client_properties:object connected_at:number user_who_performed_action:text
type:text user_provided_name:text state:text channels:number recv_cnt:number send_cnt:number send_pend:number
garbage_collection:object {counted("", ["recv_oct", "send_oct", "reductions"])} container_id:text
"""
_CHANNEL = f"""
name:text node:text number:number user:text vhost:text user_who_performed_action:text transactional:boolean
confirm:boolean consumer_count:number messages_unacknowledged:number messages_unconfirmed:number
messages_uncommitted:number acks_uncommitted:number pending_raft_commands:number cached_segments:number
prefetch_count:number global_prefetch_count:number state:text garbage_collection:object idle_since:text
connection_details:object connection_details.name:text connection_details.peer_host:text
connection_details.peer_port:number message_stats:object {counted("", ["reductions"])}
"""
_CHANNEL_STATS = counted("message_stats.", STATS)
_CONSUMER = """
consumer_tag:text exclusive:boolean ack_required:boolean prefetch_count:number active:boolean activity_status:text
arguments:object consumer_timeout:number? queue:object queue.name:text queue.vhost:text channel_details:object
channel_details.name:text channel_details.node:text channel_details.number:number channel_details.user:text
channel_details.connection_name:text channel_details.peer_host:text channel_details.peer_port:number
"""
_EXCHANGE = f"""
name:text vhost:text type:text durable:boolean auto_delete:boolean internal:boolean arguments:object policy:text
user_who_performed_action:text message_stats:object {counted("message_stats.", ["publish_in", "publish_out"])}
"""
_BARE_QUEUE = """
name:text vhost:text durable:boolean auto_delete:boolean exclusive:boolean arguments:object internal:boolean
internal_owner:boolean type:text state:text node:text policy:text? operator_policy:text?
effective_policy_definition:object
"""
_LENGTHS = "messages:number messages_ready:number messages_unacknowledged:number"
_OF_QUEUE = ["publish", *STATS[4:]]
_QUEUE = f"""
{_BARE_QUEUE} {_LENGTHS} messages_details:object messages_ready_details:object messages_unacknowledged_details:object
message_bytes:number message_bytes_ready:number message_bytes_unacknowledged:number consumers:number
consumer_capacity:number consumer_utilisation:number memory:number exclusive_consumer_tag:text?
single_active_consumer_tag:text? message_stats:object {counted("message_stats.", _OF_QUEUE)}
messages_ram:number message_bytes_ram:number messages_persistent:number message_bytes_persistent:number
garbage_collection:object user_who_performed_action:text idle_since:text {counted("", ["reductions"])}
"""
_CLASSIC = """
messages_ready_ram:number messages_unacknowledged_ram:number head_message_timestamp:number? messages_paged_out:number
message_bytes_paged_out:number storage_version:number
"""
_QUORUM = """
delivery_limit:number leader:text members:list online:list messages_dlx:number message_bytes_dlx:number
open_files:list publishers:number messages_ready_high:number messages_ready_normal:number
messages_ready_returned:number
"""
_BINDING = """
source:text vhost:text destination:text destination_type:text routing_key:text arguments:object properties_key:text
"""
_VHOST = f"""
name:text description:text tags:list default_queue_type:text protected_from_deletion:boolean metadata:object
metadata.description:text metadata.tags:list metadata.default_queue_type:text tracing:boolean cluster_state:object
{_LENGTHS} messages_details:object messages_ready_details:object messages_unacknowledged_details:object
{counted("", ["recv_oct", "send_oct"])} message_stats:object {counted("message_stats.", STATS)}
"""
_USER = "name:text password_hash:text hashing_algorithm:text tags:list limits:object"
_PERMISSION = "user:text vhost:text configure:text write:text read:text"
_TOPIC_PERMISSION = "user:text vhost:text exchange:text write:text read:text"
_POLICY = "vhost:text name:text pattern:text apply-to:text definition:object priority:number"
_DEFINITIONS = """
rabbit_version:text rabbitmq_version:text product_name:text product_version:text rabbitmq_definition_format:text
parameters:list policies:list queues:list exchanges:list bindings:list policies[].name:text
policies[].pattern:text policies[].definition:object policies[].priority:number policies[].apply-to:text
queues[].name:text queues[].durable:boolean queues[].auto_delete:boolean queues[].type:text queues[].arguments:object
exchanges[].name:text exchanges[].type:text exchanges[].durable:boolean exchanges[].auto_delete:boolean
exchanges[].arguments:object bindings[].source:text bindings[].destination:text
bindings[].destination_type:text bindings[].routing_key:text bindings[].arguments:object
"""
_ALL_DEFINITIONS = f"""
{_DEFINITIONS} explanation:text original_cluster_name:text users:list vhosts:list permissions:list
topic_permissions:list global_parameters:list users[].name:text users[].password_hash:text
users[].hashing_algorithm:text users[].tags:list users[].limits:object vhosts[].name:text vhosts[].limits:object
vhosts[].metadata:object permissions[].user:text permissions[].vhost:text permissions[].configure:text
permissions[].write:text permissions[].read:text topic_permissions[].user:text topic_permissions[].vhost:text
topic_permissions[].exchange:text topic_permissions[].write:text topic_permissions[].read:text
global_parameters[].name:text global_parameters[].value:any
"""
_VHOST_DEFINITIONS = f"""
{_DEFINITIONS} explanation:text original_vhost_name:text metadata:object description:text limits:object
"""
_FLAG = """
name:text state:text stability:text require_level:text experiment_level:text callbacks:list provided_by:text desc:text
doc_url:text
"""
_ATTEMPTS = "protocol:text auth_attempts:number auth_attempts_failed:number auth_attempts_succeeded:number"


def rows(fields: str) -> str:
    return " ".join(f"[].{each}" for each in fields.split())


def named(where: str, fields: str) -> str:
    return " ".join(f"{where}.{each}" for each in fields.split())


FIELDS: dict[str, str] = {
    "/overview": _OVERVIEW,
    "/cluster-name": "name:text",
    "/nodes": rows(_NODE),
    "/nodes/{node}?memory=true&binary=true": f"{_NODE} memory:object binary:object {named('memory', _MEMORY)}",
    "/nodes/{node}/memory": f"memory:object memory.strategy:text memory.total:object memory.total.erlang:number "
    f"memory.total.rss:number memory.total.allocated:number {named('memory', _MEMORY)}",
    "/nodes/{node}/memory/relative": f"memory:object memory.total:number {named('memory', _MEMORY)}",
    "/connections": rows(_CONNECTION),
    "/connections/{connection}": _CONNECTION,
    "/connections/{connection}/channels": rows(f"{_CHANNEL} {_CHANNEL_STATS}"),
    "/vhosts/compared/connections": rows(_CONNECTION),
    "/channels": rows(f"{_CHANNEL} {_CHANNEL_STATS}"),
    "/channels/{consumer}": f"{_CHANNEL} {counted('message_stats.', ['deliver_get'])} publishes:list deliveries:list "
    "consumer_details:list " + named("consumer_details[]", _CONSUMER),
    "/vhosts/compared/channels": rows(f"{_CHANNEL} {_CHANNEL_STATS}"),
    "/consumers": rows(_CONSUMER),
    "/consumers/compared": rows(_CONSUMER),
    "/exchanges": rows(_EXCHANGE),
    "/exchanges/compared": rows(_EXCHANGE),
    "/exchanges/compared/news": f"{_EXCHANGE} incoming:list outgoing:list",
    "/queues": rows(f"{_QUEUE} {_CLASSIC} {_QUORUM}"),
    "/queues/detailed": rows(f"{_QUEUE} {_CLASSIC} {_QUORUM}"),
    "/queues/compared": rows(f"{_QUEUE} {_CLASSIC} {_QUORUM}"),
    "/queues/compared/busy": f"{_QUEUE} {_CLASSIC} incoming:list deliveries:list consumer_details:list "
    + named("consumer_details[]", _CONSUMER),
    "/queues/compared/sure": f"{_QUEUE} {_QUORUM} incoming:list deliveries:list consumer_details:list",
    "/queues/compared/own": "owner_pid_details:object owner_pid_details.name:text owner_pid_details.peer_host:text "
    "owner_pid_details.peer_port:number",
    "/queues?disable_stats=true": rows(f"{_BARE_QUEUE} leader:text members:list online:list delivery_limit:number"),
    "/queues?disable_stats=true&enable_queue_totals=true": rows(f"{_BARE_QUEUE} {_LENGTHS}"),
    "/bindings": rows(_BINDING),
    "/bindings/compared/e/news/q/plain": rows(_BINDING),
    "/queues/compared/plain/bindings": rows(_BINDING),
    "/exchanges/compared/news/bindings/source": rows(_BINDING),
    "/vhosts": rows(_VHOST),
    "/vhosts/compared": _VHOST,
    "/users": rows(_USER),
    "/users/bea": _USER,
    "/permissions": rows(_PERMISSION),
    "/permissions/compared/bea": _PERMISSION,
    "/vhosts/compared/permissions": rows(_PERMISSION),
    "/topic-permissions": rows(_TOPIC_PERMISSION),
    "/topic-permissions/compared/bea": rows(_TOPIC_PERMISSION),
    "/policies": rows(_POLICY),
    "/policies/compared/short": _POLICY,
    "/operator-policies": rows(_POLICY),
    "/operator-policies/compared/cap": _POLICY,
    "/global-parameters": rows("name:text value:any"),
    "/global-parameters/labels": "name:text value:object",
    "/vhost-limits": rows("vhost:text value:object value.max-queues:number value.max-connections:number"),
    "/user-limits": rows("user:text value:object value.max-channels:number"),
    "/feature-flags": rows(_FLAG),
    "/whoami": "name:text tags:list is_internal_user:boolean",
    "/extensions": rows("javascript:text"),
    "/definitions": _ALL_DEFINITIONS,
    "/definitions/compared": _VHOST_DEFINITIONS,
    "/auth/attempts/{node}": rows(_ATTEMPTS),
    "/auth/attempts/{node}/source": rows(f"{_ATTEMPTS} remote_address:text username:text"),
    "/health/checks/alarms": "status:text",
    "/health/checks/local-alarms": "status:text",
    "/health/checks/virtual-hosts": "status:text",
    "/health/checks/node-is-quorum-critical": "status:text",
    "/health/checks/quorum-queues-without-elected-leaders/all-vhosts": "status:text",
    "/health/checks/is-in-service": "status:text",
    "/health/checks/below-node-connection-limit": "status:text",
    "/health/checks/ready-to-serve-clients": "status:text",
    "/health/checks/reached-target-cluster-size": "status:text",
    "/health/checks/metadata-store/initialized": "status:text",
    "/health/checks/certificate-expiration/1/months": "status:text",
    "/health/checks/port-listener/{port}": "status:text port:number",
    "/health/checks/protocol-listener/amqp": "status:text protocols:list",
}
"""by what is asked, of what `same_topology.py` makes; and of the exclusive queue `own`"""


class LeftOut(NamedTuple):
    """`where` is a regular expression of the requests, in docs/http.md as `said`."""

    fields: str
    said: str
    where: str
    why: str


_ALL = r".*"
_QUEUES = r"/queues.*"
LEFT_OUT = [
    LeftOut("reductions reductions_details garbage_collection", "all", _ALL, "Erlang's processes"),
    LeftOut("statistics_db_node", "overview", "/overview", "RabbitMQ 4.2 documents it, and has it no more"),
    LeftOut("socket_opts ssl_opts", "listeners, contexts", "/overview", "options of Erlang's sockets"),
    LeftOut("disk_reads disk_reads_details disk_writes disk_writes_details", "overview", "/overview", "not counted"),
    LeftOut("sockets_total", "nodes", "/nodes.*", "0 in RabbitMQ 4; sockets are open files (`fd_total`)"),
    LeftOut("fd_used_details", "nodes", "/nodes.*", "open files are counted when somebody asks"),
    LeftOut(
        "proc_used_details gc_num gc_num_details gc_bytes_reclaimed gc_bytes_reclaimed_details net_ticktime "
        "ra_open_file_metrics metrics_gc_queue_length",
        "nodes",
        "/nodes.*",
        "Erlang's, or of RabbitMQ's own parts",
    ),
    LeftOut(
        "binary",
        "a node with `binary=true`",
        r"/nodes/\{node\}\?memory=true&binary=true",
        "who owns memory of Erlang's",
    ),
    LeftOut(
        "explanation", "definitions of a virtual host", "/definitions/compared", "in those of all it names users"
    ),
    LeftOut(" ".join(f"{each} {each}_details" for each in _IO), "nodes", "/nodes.*", "always 0 in RabbitMQ 4"),
    LeftOut("recv_cnt send_cnt", "connections", ".*/?connections.*", "packets are not counted"),
    LeftOut("container_id", "connections", ".*/?connections.*", "of AMQP 1.0"),
    LeftOut("pending_raft_commands cached_segments", "channels", ".*channels.*", "RabbitMQ's quorum queues, streams"),
    LeftOut("idle_since", "channels, queues", ".*", "not kept"),
    LeftOut(
        " ".join(f"message_stats.{each} message_stats.{each}_details" for each in (*STATS[2:9], *STATS[10:])),
        "channels",
        ".*channels.*",
        "counted by queue and exchange; a channel has `publish`, `confirm` and `deliver_get`",
    ),
    LeftOut("user_who_performed_action", "exchanges, queues", "/(exchanges|queues).*", "not kept"),
    LeftOut(
        "messages_ready_details messages_unacknowledged_details",
        "queues, vhosts",
        "/(queues|vhosts).*",
        "with samples only (`lengths_age`)",
    ),
    LeftOut(
        "messages_ram message_bytes_ram messages_ready_ram messages_unacknowledged_ram messages_paged_out "
        "message_bytes_paged_out",
        "queues",
        _QUEUES,
        "what is in memory is counted in bytes only (`memory`)",
    ),
    LeftOut(
        "messages_persistent message_bytes_persistent", "classic queues", "/queues/compared/busy", "not counted apart"
    ),
    LeftOut("storage_version open_files", "queues", _QUEUES, "of RabbitMQ's own files"),
    LeftOut(
        "message_bytes_dlx publishers messages_ready_high messages_ready_normal messages_ready_returned",
        "quorum queues",
        _QUEUES,
        "not counted",
    ),
]
