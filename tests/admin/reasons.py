"""Why an answer of amqpd may differ from RabbitMQ's: one list, for fields and for whole answers.

What comes in: a request, a kind of difference, a field. What goes out: the reason, or none.
Rules: 1. What is not said here has to be equal. 2. A reason that nothing needs any more fails the test, so that
the list gets shorter.
Not here: the comparison (`compare.py`), routes that are not there (`rabbitmq_routes.py`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from amqpd.management.figures.totals import CHURN


class Reason(NamedTuple):
    """Regular expressions that match the whole of a kind of difference, of a field, of a request."""

    why: str
    kinds: str
    field: str
    request: str = r".*"


def named(*names: str) -> str:
    """Fields of these names, wherever they are, and what is in them."""
    return rf"(?:.*[.\]])?(?:{'|'.join(names)})(?:[.\[(].*)?"


ERLANG = "of Erlang or of RabbitMQ's own parts"
MESSAGE = "would be counted for each message"
SAMPLED = r"GET .*_age=60.*"
FIELDS = [
    Reason(
        "of this process, machine or moment",
        "value",
        named(
            *("os_pid", "uptime", "fd_used", "mem_used", "mem_limit", "disk_free", "db_dir", "port", "peer_port"),
            *("send_oct", "recv_oct", "connected_at", "context_switches", "memory", "rate", "rss"),
            *("consumer_capacity", "consumer_utilisation", "fd_total", "sockets_used"),
            *("proc_total", "proc_used", "run_queue", "send_pend"),
        ),
    ),
    Reason(
        ERLANG,
        "missing",
        named(
            *("garbage_collection", "reductions", "reductions_details"),
            *("gc_\\w+", "mnesia_\\w+", "ra_open_file_metrics", "metrics_gc_queue_length"),
            *("net_ticktime", "applications", "backing_queue_status", "sockets_total"),
            *("cowboy_opts", "socket_opts", "ssl_opts", "msg_store_\\w+", "queue_index_\\w+", "io_\\w+"),
            *("release_series_support_status", "enabled_plugins", "config_files"),
            *("log_files", "pending_raft_commands", "recoverable_slaves", "proc_used_details", "internal_cluster_id"),
        ),
    ),
    Reason(ERLANG, "missing", r"\w+\[\]\(name=(x-federation-upstream|internal_cluster_id|RABBIT-CR-DEMO)\)"),
    Reason(ERLANG, "missing", r"\[\]\.\w+\[\]\(name=(x-federation-upstream|RABBIT-CR-DEMO)\)"),
    Reason(ERLANG, "missing", r"\[\]\(name=internal_cluster_id\)", "GET /global-parameters"),
    Reason("of newer versions", "extra", named("internal", "internal_owner"), "GET /queues.*"),
    Reason(
        "of newer versions",
        "extra",
        r"cluster_tags|node_tags|default_queue_type|is_op_policy_updating_enabled|crypto_lib_version",
        r"GET /overview.*",
    ),
    Reason("of newer versions", "extra", r"(\[\]\.)?(crypto_lib|erlang(_full)?)_version", r"GET /nodes.*"),
    Reason("of newer versions", "extra", r"(listeners|contexts)\[\]\.tls", r"GET /overview.*"),
    Reason("of newer versions", "extra", named("peer_cert_serial_number"), r"GET .*connections.*"),
    Reason("its own programs and files", "extra", r"(\[\]\.)?(applications|log_files)\[\].*", r"GET /nodes.*"),
    Reason("of newer versions", "extra", "description|limits|metadata", "GET /definitions/compared"),
    Reason("ours: what of a queue needs attention", "extra", named("attention"), "GET /queues.*"),
    Reason("amqpd does it without a plugin", "extra", named("enabled_plugins"), "GET /nodes.*"),
    Reason("RabbitMQ has them in health checks only", "extra", r"(\[\]\.)?alarms", "GET /(overview|nodes).*"),
    Reason("of newer versions", "extra|value", r"\[\].*", "GET /feature-flags"),
    Reason(ERLANG, "missing", r"memory\.\w+(\.\w+)?", r"GET /nodes/\{node\}/memory.*"),
    Reason("of newer versions", "extra", r"memory\.\w+", r"GET /nodes/\{node\}/memory.*"),
    Reason("of newer versions", "extra", named("delivery_limit"), "GET /queues.*"),
    Reason("of newer versions", "extra", named("consumer_timeout"), r"GET /(queues|consumers|channels).*"),
    Reason(
        "ours: which users RabbitMQ could not let in", "extra", "explanation", r"GET /(definitions|all-configuration)"
    ),
    Reason("RabbitMQ gives all that is in one thing", "missing", r"object_totals\.\w+", r"GET /overview/\?columns.*"),
    Reason("a hash of Erlang's", "missing|extra", r"(bindings)?\[\]\(.*properties_key=\S*~\S+\)"),
    Reason("a hash of Erlang's", "header", "location", r"POST /bindings/.*"),
    Reason("there are no web pages of RabbitMQ's", "missing|extra|value", r"\[\].*", "GET /extensions"),
    Reason("there are listeners of RabbitMQ's own protocols", "missing", r"(listeners|ports|protocols)\[\].*"),
    Reason("the port of each address", "extra", r"((\[\]\.)?contexts|listeners|ports|protocols)\[\].*"),
    Reason(
        MESSAGE,
        "missing",
        named(
            *("disk_reads", "disk_writes", "disk_reads_details", "disk_writes_details"),
            *("messages_ram", "messages_ready_ram", "messages_unacknowledged_ram", "messages_persistent"),
            *("messages_paged_out", "message_bytes_ram", "message_bytes_persistent", "message_bytes_paged_out"),
            *("send_cnt", "recv_cnt", "messages_ready_details", "messages_unacknowledged_details", "fd_used_details"),
        ),
    ),
    Reason(
        "counted by queue and exchange",
        "missing",
        r".*message_stats\.(ack|redeliver|(deliver|get)(_no_ack)?|get_empty|(return|drop)_unroutable)(_details)?",
        r"GET .*channels.*",
    ),
    Reason("a channel that did nothing but ask in vain has none", "missing", r".*message_stats", r"GET .*channels.*"),
    Reason(
        "RabbitMQ has no publishes of a queue to which nothing came",
        "type",
        r".*message_stats",
        "GET /queues.columns.*",
    ),
    Reason("what an operator publishes is confirmed to nobody", "value", named("confirm")),
    Reason("RabbitMQ leaves out what is nothing", "extra", named(r"(recv|send)_oct(_details)?"), r"GET /vhosts.*"),
    Reason(
        "ours: what a client publishes on all its channels", "extra", named("message_stats"), r"GET .*connections.*"
    ),
    Reason(
        "ours: what the client calls itself", "extra", named("user_provided_name"), r"GET .*(chan|cons|/queues/).*"
    ),
    Reason("ours: what waits for its acknowledgement", "extra", r".*messages_unacknowledged", r"GET .*(chan|cons).*"),
    Reason("ours: how long the oldest message is there", "extra", named("oldest_message_age_s"), r"GET /queues.*"),
    Reason("ours: the same in plain words", "extra", "says"),
    Reason(
        "there are no samples of details", "missing", r"sample_retention_policies\.detailed\[\].*", r"GET /overview.*"
    ),
    Reason("RabbitMQ's own checks are clients, too", "value", named(*CHURN), r"GET /(overview|nodes).*"),
    Reason("samples of another moment", "value|missing|extra", r".*_details\.(samples|avg|avg_rate).*", SAMPLED),
    Reason(
        "RabbitMQ's numbers are then those of its last sample, amqpd's counters of a virtual host always; RabbitMQ's"
        " aliveness test is one message more",
        "value",
        r"((items)?\[\]\.)?((message_stats|\w+_totals)\.)?"
        r"(messages\w*|publish(_in|_out)?|deliver(_\w+)?|get(_\w+)?|redeliver|ack|queues)",
        SAMPLED,
    ),
    Reason("not kept", "missing", named("user_who_performed_action", "idle_since")),
    Reason("ours: of quorum queues, too", "extra", named("head_message_timestamp"), r"GET /queues.*"),
    Reason(
        "RabbitMQ leaves out what its statistics do not have yet, and always where it gives little of a row",
        "extra|missing",
        named(
            *("state", "policy", "operator_policy", "single_active_consumer_tag", "exclusive_consumer_tag"),
            *("effective_policy_definition", "consumers", "consumer_capacity", "consumer_utilisation", "memory"),
            *("messages", "messages_ready", "messages_unacknowledged", "messages_details", "node"),
            *("message_bytes", "message_bytes_ready", "message_bytes_unacknowledged", "message_stats"),
            *("messages_ready_details", "messages_unacknowledged_details"),
            *("messages_dlx", "messages_persistent", "message_bytes_persistent"),
        ),
        r"GET /(queues|vhosts).*",
    ),
    Reason("RabbitMQ has a word of its own there", "value|type", r"\[\]\.(state|exclusive)", r".*disable_stats.*"),
    Reason("none is an empty text in RabbitMQ where one is shown", "type", r"(ssl|peer_cert)_\w+"),
    Reason(
        "product and version",
        "value",
        named(
            *("product_name", "product_version", "rabbitmq_version", "rabbit_version", "management_version"),
            *("erlang_version", "erlang_full_version", "cluster_name"),
        ),
    ),
    Reason("the cluster's name is the node's", "value", "name", "GET /cluster-name"),
    Reason("of newer versions", "extra", named("protected_from_deletion", "is_internal_user", "being_drained")),
    Reason("of newer versions", "extra", r"(\[\]\.)?metadata\..*|protocols"),
    Reason("of newer versions", "extra", r"(\[\]\.)?rabbitmq_version", r"GET /nodes.*"),
    Reason(
        "of newer versions",
        "extra|missing",
        r"rabbitmq_definition_format|original_vhost_name|product_\w+|rabbitmq_version|(queues\[\]\.type)"
        r"|vhosts\[\]\.(metadata|limits).*|(parameters|policies)\[\]\(.*",
        r"GET /(definitions|all-configuration).*",
    ),
    Reason("left out where it is false", "missing", r"exchanges\[\]\.internal", r"GET /(definitions|all-conf).*"),
    Reason("RabbitMQ says undefined", "value", named("default_queue_type")),
    Reason("described by RabbitMQ", "value", r"(\[\]\.)?(metadata\.)?description", r"GET /vhosts.*"),
    Reason("described in other words", "value", r"(\[\]\.)?(contexts|auth_mechanisms)\[\]\.description"),
    Reason("hashed by argon2", "value", named("password_hash", "hashing_algorithm")),
    Reason("durable unless it is said otherwise: RabbitMQ 4.3 refuses such queues", "value", named("durable")),
    Reason("a plugin of RabbitMQ's", "extra", r"(\[\]\.)?exchange_types\[\]\(name=x-delayed-message\)"),
    Reason("of newer versions", "extra", r"(\[\]\.)?exchange_types\[\]\(name=x-local-random\)"),
]
ANSWERS = [
    Reason("RabbitMQ fails inside", "status", "500"),
    Reason("RabbitMQ says nothing", "value", "empty"),
    Reason("RabbitMQ has two words for it", "value", "error", r"GET /(queues|exchanges)\?msg_rates_age=.*"),
    Reason("of this process, machine or moment", "value", r"\[\]\.auth_attempts\w*", r"GET /auth/attempts/.*"),
    Reason("RabbitMQ counts sources when it is told to", "extra", r"\[\].*", r"GET /auth/attempts/.*/source"),
    Reason("of RabbitMQ 3 only", "status", ".*", "GET /auth"),
    Reason("RabbitMQ 4 says the same", "value", "reason", r"GET /whoami as .*"),
    Reason("a queue that is not there has no binding", "missing", r"\[\].*", "GET /queues/compared/none/bindings"),
    Reason("amqpd says what was refused", "value", "reason", r"(PUT|POST|DELETE) /(queues|exchanges|bindings)/.*"),
    Reason("amqpd says what is wrong with it", "value|type", "reason", r"GET /queues\?page=1&use_regex.*"),
    Reason("one more queue, of RabbitMQ's aliveness test", "value", "reason", r"GET /queues\?page=99"),
    Reason("one more queue, of RabbitMQ's aliveness test", "value", "total_count", SAMPLED),
    Reason(
        "amqpd says in words what is wrong",
        "type|value",
        "reason",
        r"(PUT|POST) /(users|permissions|policies|exchanges|topic-permissions)/.*",
    ),
    Reason("amqpd names each thing that is wrong", "type|value", "reason", "POST /definitions"),
    Reason("RabbitMQ drops what it cannot make", "status", "204", "POST /definitions"),
    Reason("who may not see a virtual host may not know it", "value", "reason", "GET /vhosts/empty as bea"),
    Reason("RabbitMQ does not page users", "type", "", r"GET /users\?page.*"),
]
OF_COMMANDS = [
    Reason(
        "what an operator takes is acknowledged when the answer is made, so that none is lost before",
        "value",
        named("get", "get_no_ack", "ack"),
        r"GET /(queues|overview|vhosts)",
    ),
    Reason(
        "of RabbitMQ's quorum queues",
        "missing",
        named("message_bytes_dlx", "open_files", "single_active_consumer_ctag"),
        "GET /queues.*",
    ),
]
"""that only the commands of rabbitmqadmin meet, on what they make"""
COMPARED = FIELDS + ANSWERS
REASONS = COMPARED + OF_COMMANDS


def reason_of(request: str, kind: str, field: str) -> Reason | None:
    for each in REASONS:
        if re.fullmatch(each.kinds, kind) and re.fullmatch(each.field, field) and re.fullmatch(each.request, request):
            return each
    return None
