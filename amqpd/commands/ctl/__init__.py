"""`amqpd ctl`: the commands of rabbitmqctl that scripts use, with their words, output and exit codes.

What comes in: rabbitmqctl's words. What goes out: what rabbitmqctl would have printed; its exit code.
Rules: 1. What a command does is a use case of `amqpd/management/`, as of any other command. 2. What amqpd cannot do
is refused with a reason and exit code 69: nothing is answered that was not done.
Not here: our own commands, which say more (`amqpd --help`).

Source: https://www.rabbitmq.com/docs/man/rabbitmqctl.8.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, NoReturn

import click

from amqpd.commands.ctl import nodes, users, vhosts
from amqpd.commands.ctl.call import UNAVAILABLE, USAGE, complain
from amqpd.commands.ctl.lists import LISTS, list_feature_flags, list_unresponsive_queues
from amqpd.vocabulary.escapes import escaped

_SETTING = "change the setting in the file or the environment, and start the broker again"
_CLUSTER = "`amqpd cluster` and `amqpd quorum` change who is in a cluster and where queues are kept"
_ERLANG = "it is about Erlang"
_PROCESS = "a broker is started with `amqpd serve` and stopped with SIGTERM, by its supervisor"
REFUSED = {
    **dict.fromkeys(("start_app", "stop_app", "stop", "shutdown"), _PROCESS),
    **dict.fromkeys(("reset", "force_reset", "force_boot"), "a broker begins again with an empty data directory"),
    **dict.fromkeys(("join_cluster", "forget_cluster_node", "change_cluster_node_type"), _CLUSTER),
    **dict.fromkeys(("rename_cluster_node", "update_cluster_nodes"), _CLUSTER),
    **dict.fromkeys(("sync_queue", "cancel_sync_queue"), "there are no mirrored queues: use quorum queues"),
    **dict.fromkeys(("set_vm_memory_high_watermark", "set_disk_free_limit", "set_log_level"), _SETTING),
    **dict.fromkeys(("eval", "eval_file", "exec", "force_gc", "schema_info", "report", "environment"), _ERLANG),
    **dict.fromkeys(("encode", "decode", "list_ciphers", "list_hashes"), "settings are not encrypted"),
    **dict.fromkeys(("suspend_listeners", "resume_listeners"), "listeners cannot be suspended"),
    "restart_vhost": "a virtual host is not restarted by itself",
    "rotate_logs": "logs go to standard error, and who reads them turns them over",
    "list_node_auth_attempt_stats": "log-in attempts are in the log",
    "hipe_compile": _ERLANG,
}

COMMANDS: dict[str, click.Command] = {
    str(each.name): each
    for module in (users, vhosts, nodes)
    for each in (*vars(module).values(), *getattr(module, "POLICIES", ()))
    if isinstance(each, click.Command)
} | {str(each.name): each for each in (*LISTS, list_unresponsive_queues, list_feature_flags)}

# What may stand before the command, and says the same behind it. {flag: whether a value follows}
BEFORE = {"-n": True, "--node": True, "-t": True, "--timeout": True, "-p": True, "--vhost": True, "--formatter": True}
BEFORE |= {"-q": False, "--quiet": False, "-s": False, "--silent": False, "-l": False, "--longnames": False}


class Ctl(click.Group):
    """The group of the commands of `amqpd ctl`: options may stand before the command, too; `help COMMAND` is the
    command's --help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        moved: list[str] = []
        while args and (flag := args[0].partition("=")[0]) in BEFORE:
            count = 2 if BEFORE[flag] and "=" not in args[0] else 1
            moved, args = moved + args[:count], args[count:]
        if args[:1] == ["help"]:
            args = [*args[1:2], "--help"]
        return super().parse_args(ctx, [*args[:1], *moved, *args[1:]])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            click.echo(f"Error (argument validation): {escaped(error.format_message())}", err=True)
            if error.ctx is not None:
                click.echo(error.ctx.get_usage(), err=True)
            ctx.exit(USAGE)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if (name := args[0]) not in COMMANDS:
            _refuse(ctx, name)
        return name, COMMANDS[name], args[1:]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return COMMANDS.get(cmd_name)


def _refuse(ctx: click.Context, name: str) -> NoReturn:
    if name in REFUSED:
        complain(f"'{name}' is not here: {REFUSED[name]}", UNAVAILABLE)
    near = get_close_matches(name, COMMANDS, 1)
    hint = f"\nDid you mean '{near[0]}'?" if near else ""
    click.echo(f"\nCommand '{escaped(name)}' not found.{hint}", err=True)
    ctx.exit(USAGE)


@click.command(cls=Ctl)
def ctl() -> None:
    """Use rabbitmqctl's words: for scripts that were written for RabbitMQ.

    The broker is that of the data directory, as with all commands; --node is taken and means nothing.

    \b
    Examples:
      amqpd ctl add_user alice secret
      amqpd ctl set_permissions -p / alice '.*' '.*' '.*'
      amqpd ctl -q list_queues name messages consumers
      alias rabbitmqctl='amqpd ctl'
    """
