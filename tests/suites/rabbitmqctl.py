"""What suites ask of `rabbitmqctl`, said in amqpd's commands: the same operator's step on the other broker.

What comes in: rabbitmqctl's words. AMQPD_DATA_DIR names the broker, SUITE_BROKER the socket of its run.
What goes out: amqpd's output and exit code; 69 for what is not translated, as nothing in amqpd is like it.
Rules: 1. One step of ours for one of theirs: a command, or what the run (stop, start, settings) or a client (deleting
a queue) does. 2. Nothing is answered that was not done.
Not here: the commands (`amqpd/commands/`), carrying out what the run is asked for (`node.py`).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from amqpd.__main__ import run

from . import node
from .catalogue import PORT
from .network import IPV4

UNAVAILABLE = 69
FLAGS_WITH_VALUE = ("-n", "-p", "--priority", "--apply-to")
FLAGS = ("-q", "--quiet", "--help")

Words = list[str]
Options = dict[str, str]

# {rabbitmqctl's command: the words for amqpd}. The virtual host comes first in ours, by `-p` in theirs.
COMMANDS: dict[str, Callable[[Words, Options], Words]] = {
    "add_user": lambda words, _: ["user", "add", *words],
    "delete_user": lambda words, _: ["user", "delete", *words],
    "set_user_tags": lambda words, _: ["user", "tags", *words],
    "add_vhost": lambda words, _: ["vhost", "add", *words],
    "delete_vhost": lambda words, _: ["vhost", "delete", *words],
    "set_permissions": lambda words, options: ["permission", "set", options["-p"], *words],
    "clear_permissions": lambda words, options: ["permission", "clear", options["-p"], *words],
    "set_topic_permissions": lambda words, options: ["permission", "topic", "set", options["-p"], *words],
    "clear_topic_permissions": lambda words, options: ["permission", "topic", "clear", options["-p"], *words],
    "set_policy": lambda words, options: ["policy", "set", options["-p"], *words, *kept(options)],
    "clear_policy": lambda words, options: ["policy", "clear", options["-p"], *words],
    "close_connection": lambda words, _: ["connection", "close", words[0], "--reason", words[1]],
    "close_all_connections": lambda words, _: ["connection", "close", "--all", "--reason", words[0]],
    "list_connections": lambda words, _: ["connection", "list", "--json"],
    # RabbitMQ's suites set a mark so low that the alarm goes off, and take the default to end it.
    "set_vm_memory_high_watermark": lambda words, _: [
        "alarm",
        "set" if float(words[0]) < 0.01 else "clear",
        "memory",
    ],
    "set_cluster_name": lambda words, _: ["ctl", "set_cluster_name", *words],
    "enable_feature_flag": lambda words, _: ["ctl", "enable_feature_flag", *words],
    "trace_on": lambda _, options: ["trace", "on", "--vhost", options["-p"]],
    "trace_off": lambda _, options: ["trace", "off", "--vhost", options["-p"]],
    "eval": lambda words, _: alarm(words[0]),
}
# The Erlang expression by which suites change a setting. {RabbitMQ's name: ours, the value that is the default's}.
SET_ENV = re.compile(r"application:set_env\(rabbit, (\w+), (\d+)\)\.")
NUMBERS = {"channel_max": ("AMQPD_CHANNEL_MAX", "0")}


def main(arguments: Words) -> int:
    words, options = parsed(arguments)
    if "--help" not in options and (step := of_the_run(words)) is not None:
        verb, settings = step
        why = node.ask(Path(os.environ["SUITE_BROKER"]), verb, settings)
        if why:
            print(why, file=sys.stderr)
        return 1 if why else 0
    if words[0] == "delete_queue" and "--help" not in options:
        return delete_queue(words[1], options["-p"])
    try:
        command = COMMANDS[words[0]](words[1:], options)
    except LookupError:
        print(f"not translated for amqpd: {' '.join(words)}", file=sys.stderr)
        return UNAVAILABLE
    if "--help" in options:
        return 0
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = run(command)
    if words[0] == "list_connections" and code == 0:
        for row in json.loads(said.getvalue()):
            print("\t".join(column(row, name) for name in words[1:]))
    else:
        print(said.getvalue(), end="")
    return code


def of_the_run(words: Words) -> tuple[str, dict[str, str | None]] | None:
    """What the run that started the broker is asked for, or None: the words are another's."""
    if words[0] in ("stop_app", "start_app"):
        return words[0].removesuffix("_app"), {}
    match = SET_ENV.fullmatch(words[1]) if words[0] == "eval" else None
    if match and match[1] in NUMBERS:
        name, default = NUMBERS[match[1]]
        return "restart", {name: None if match[2] == default else match[2]}
    return None


def delete_queue(queue: str, vhost: str) -> int:
    """By a client, logged in as guest: amqpd has no command for it."""
    import pika  # of the development environment

    parameters = pika.ConnectionParameters(IPV4, PORT, vhost)
    with pika.BlockingConnection(parameters) as connection:
        connection.channel().queue_delete(queue)
    return 0


def parsed(arguments: Words) -> tuple[Words, Options]:
    words: Words = []
    options: Options = {"-p": "/"}
    rest = iter(arguments)
    for word in rest:
        if word in FLAGS_WITH_VALUE:
            options[word] = next(rest)
        elif word in FLAGS:
            options[word] = ""
        else:
            words.append(word)
    return words, options


def kept(options: Options) -> Words:
    return [word for pair in options.items() if pair[0].startswith("--") for word in pair]


def alarm(expression: str) -> Words:
    """The Erlang expressions by which suites switch alarms. Raises LookupError for another."""
    for call, verb in (("rabbit_alarm:set_alarm", "set"), ("rabbit_alarm:clear_alarm", "clear")):
        if expression.startswith(call):
            return ["alarm", verb, "disk" if "disk" in expression else "memory"]
    raise LookupError(expression)


def column(row: dict[str, object], name: str) -> str:
    """A connection's item in the form of `rabbitmqctl list_connections`."""
    if name == "pid":
        return str(row["id"])
    if name == "peer_port":
        return str(row["name"]).partition(" ")[0].rpartition(":")[2]
    properties = row[name]
    assert isinstance(properties, dict)
    return "[" + ",".join(f'{{"{key}","{value}"}}' for key, value in properties.items()) + "]"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
