"""The command line: `amqpd` and `python -m amqpd`.

What comes in: words and flags. What goes out: an exit code; errors as one sentence on standard error.
Rules: 1. A command's module is imported when that command runs: `amqpd --version` does not load a database.
2. Every mistake is one sentence with the way out: 2 for wrong usage and settings, 1 for what could not be
done.
Not here: what the commands do (`commands/`).
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from amqpd.errors import Failure
from amqpd.management.control.remote import REMOTE, URL_VARIABLE, remote_broker
from amqpd.management.errors import ManagementError
from amqpd.management.plain_words import plain
from amqpd.process.config_sources import load_settings
from amqpd.vocabulary.escapes import escaped_lines

# command: (module, attribute, what the list of commands says)
COMMANDS = {
    "serve": ("amqpd.commands.serve", "serve", "Run the broker."),
    "user": ("amqpd.commands.users", "user", "Add, change, list and delete users."),
    "vhost": ("amqpd.commands.vhosts", "vhost", "Add, list and delete virtual hosts."),
    "permission": ("amqpd.commands.permissions", "permission", "Say what users may do in a virtual host."),
    "policy": ("amqpd.commands.policies", "policy", "Give arguments to many queues and exchanges at once."),
    "operator-policy": (
        "amqpd.commands.policies",
        "operator_policy",
        "Set limits that users' own policies cannot lift.",
    ),
    "limits": ("amqpd.commands.limits", "limits", "Say how much users and virtual hosts may have."),
    "parameter": ("amqpd.commands.parameters", "parameter", "Set values that components look up."),
    "global-parameter": (
        "amqpd.commands.parameters",
        "global_parameter",
        "Set values that belong to no virtual host.",
    ),
    "definitions": ("amqpd.commands.definitions", "definitions", "Export and import everything, as RabbitMQ does."),
    "status": ("amqpd.commands.status", "status", "Show a running broker at a glance."),
    "top": ("amqpd.commands.top", "top", "Watch a running broker: what needs attention, rates, its busiest queues."),
    "cluster": ("amqpd.commands.cluster", "cluster", "See the nodes of a cluster, and forget one that is gone."),
    "quorum": ("amqpd.commands.quorum", "quorum", "See and change where quorum queues are kept and served."),
    "connection": ("amqpd.commands.connections", "connection", "List and close connections."),
    "channel": ("amqpd.commands.connections", "channel", "List channels."),
    "consumer": ("amqpd.commands.connections", "consumer", "List consumers."),
    "queue": ("amqpd.commands.queues", "queue", "List queues and what is in them; declare, purge and delete them."),
    "message": ("amqpd.commands.messages", "message", "Look at messages in queues, publish, delete and move them."),
    "orphans": ("amqpd.commands.orphans", "orphans", "Give back messages whose queue is unknown after damage."),
    "exchange": ("amqpd.commands.exchanges", "exchange", "List, declare and delete exchanges."),
    "binding": ("amqpd.commands.exchanges", "binding", "List, declare and delete bindings."),
    "alarm": ("amqpd.commands.alarms", "alarm", "Make publishers wait, and see why they do."),
    "trace": ("amqpd.commands.trace", "trace", "Copy all messages of a virtual host to an exchange, to see them."),
    "metadata": ("amqpd.commands.copies", "metadata", "Put a copy of damaged metadata in its place."),
    "scrub": ("amqpd.commands.scrub", "scrub", "See how the check of what is stored goes on, or begin one."),
    "check": ("amqpd.commands.check", "check", "Look for damage in the data of a stopped broker, and repair it."),
    "backup": ("amqpd.commands.backup", "backup", "Copy messages and definitions while the broker goes on."),
    "restore": ("amqpd.commands.backup", "restore", "Put a backup into the data directory of a stopped broker."),
    "ctl": ("amqpd.commands.ctl", "ctl", "Use rabbitmqctl's words, for scripts that were written for RabbitMQ."),
    "audit": ("amqpd.commands.audit", "audit", "See what was written down of messages and acts."),
    "completion": ("amqpd.commands.completion", "completion", "Have bash, zsh or fish complete these commands."),
}


NOT_REMOTE = ("serve", "cluster", "quorum")
"""these have no flag that names a broker; of the others each says what it needs"""


class LazyGroup(click.Group):
    """A group whose commands are in modules of their own (rule 1)."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Notes whether the rest asks for help, which wrong settings must not stand in the way of."""
        ctx.meta["amqpd.help"] = bool({"-h", "--help"} & set(ctx.args))
        return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table, so that the list imports nothing."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, said) for name, (_, _, said) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the table, too: Tab is pressed often."""
        found = [
            CompletionItem(name, help=said) for name, (*_, said) in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


def version_text() -> str:
    """As in "amqpd 0.1.0 (kernel: python)"."""
    from amqpd import KERNEL, KERNEL_REASON, __version__

    return f"amqpd {__version__} (kernel: {KERNEL}{', for ' * bool(KERNEL_REASON)}{KERNEL_REASON})"


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(version_text())
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  amqpd serve                                   a broker on this machine
  amqpd user add alice                          asks for a password
  amqpd permission set / alice '.*' '.*' '.*'   what she may do
  amqpd --data-dir ./data user list             of another broker

Most commands work on a running broker and on a stopped one; connections, alarms and what is
in queues need one that runs. They find it by its data directory, which is the same setting
as for serve.""",
)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="TOML file with settings.")
@click.option("--data-dir", metavar="DIR", help="The data directory of the broker that is meant.")
@click.option(
    "--url",
    metavar="URL",
    envvar=URL_VARIABLE,
    help="The management API of a broker elsewhere, http://user:password@host:15672: for commands that ask or act "
    f"on one that runs. Also from {URL_VARIABLE}, where a password is not seen by others.",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Say which version and which kernel this is.",
)
@click.pass_context
def cli(context: click.Context, config: Path | None, data_dir: str | None, url: str | None) -> None:
    """amqpd, an AMQP 0-9-1 broker.

    One command runs it, with everything durable and nothing to configure: amqpd serve.
    """
    if url is not None and context.invoked_subcommand in NOT_REMOTE:
        raise click.UsageError(f"{context.invoked_subcommand} asks no broker: use it without --url")
    if url is not None and data_dir is not None:
        raise click.UsageError("--url and --data-dir name two brokers: leave one out")
    if context.invoked_subcommand == "serve":
        # It has more flags, and loads the settings itself; what was given here counts there too.
        context.default_map = {"serve": {"config": config, "data_dir": None if data_dir is None else [data_dir]}}
    elif not context.meta["amqpd.help"]:
        context.obj = load_settings(config, {"data_dir": data_dir})
        if url is not None:
            context.meta[REMOTE] = remote_broker(url)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: runs the command and exits."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit code. `arguments` is without the program's name, None takes the
    process's."""
    try:
        code = cli.main(arguments, prog_name="amqpd", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.ClickException as error:
        return _complain(_usage_sentence(error), error.exit_code)
    except click.Abort:
        return _complain("stopped", 130)
    except Failure as error:
        return _complain(error.sentence, error.exit_code)
    except ManagementError as error:
        return _complain(plain(str(error)), 1)
    return code if isinstance(code, int) else 0


def _complain(sentence: str, exit_code: int) -> int:
    click.echo(escaped_lines(f"amqpd: {sentence}"), err=True)
    return exit_code


def _usage_sentence(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".")
    sentence = message[:1].lower() + message[1:]
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return sentence
    if isinstance(error, click.NoSuchOption) and error.option_name in ("--config", "--data-dir"):
        command = context.command_path.removeprefix("amqpd ")
        return f"{sentence}; write it before the command: amqpd {error.option_name} ... {command}"
    return f"{sentence}; '{context.command_path} --help' says what there is"


if __name__ == "__main__":
    main()
