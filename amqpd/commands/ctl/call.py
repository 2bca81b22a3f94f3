"""One command of `amqpd ctl`: the options that all have, and how it fails.

What comes in: a function and its help. What goes out: a command of click that prints as rabbitmqctl does and ends
with its exit codes.
Rules: 1. rabbitmqctl's options that say how a node is reached (--node, --longnames, --erlang-cookie) are taken and
mean nothing: the broker is that of the data directory. 2. What is refused is two lines on standard error, `Error:`
and why.
Not here: what the commands do.

Source: sysexits.h, as rabbitmqctl uses it (https://www.rabbitmq.com/docs/cli#exit-codes).
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import click

from amqpd.commands import metadata, running
from amqpd.commands.ctl.output import FORMATTERS, CtlOutput
from amqpd.commands.options import data_dir_option, together
from amqpd.management.errors import ManagementError
from amqpd.management.metadata.interface import ManagedMetadata
from amqpd.vocabulary.escapes import escaped_lines

USAGE, DATA, NO_USER, UNAVAILABLE, SOFTWARE = 64, 65, 67, 69, 70

P = ParamSpec("P")
T = TypeVar("T")


class Failed(Exception):
    """A command of `amqpd ctl` failed: the exit code, and the text that is printed behind `Error:`."""

    def __init__(self, text: str, code: int = UNAVAILABLE) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class CtlCall:
    """The options that all commands of `amqpd ctl` have, and the ways to a use case."""

    data_dir: Path
    vhost: str
    timeout_s: float | None
    output: CtlOutput

    def change(
        self,
        use_case: Callable[Concatenate[ManagedMetadata, P], Awaitable[T]],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Of metadata. Raises ManagementError."""
        with _kinds():
            return metadata.carry_out(self.data_dir, use_case, *arguments, **named)

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Of a running broker. Raises ManagementError."""
        with _kinds():
            return running.ask(self.data_dir, command, arguments)

    def rows(self, command: str, order: tuple[str, ...], **filters: Any) -> list[dict[str, Any]]:
        with _kinds():
            return running.ask_rows(self.data_dir, command, filters, order)


common_options = together(
    data_dir_option,
    click.option("-p", "--vhost", default="/", metavar="VHOST", help="The virtual host."),
    click.option("--no-table-headers", is_flag=True, help="No headings."),
    click.option("--formatter", type=click.Choice(FORMATTERS), default="table", help="How lists are written."),
    click.option("-s", "--silent", is_flag=True, help="No sentence, and no headings."),
    click.option("-q", "--quiet", is_flag=True, help="No sentence before the result."),
    click.option("-t", "--timeout", type=float, metavar="S", help="Seconds that it may take."),
    click.option("-n", "--node", hidden=True, expose_value=False),
    click.option("-l", "--longnames", is_flag=True, hidden=True, expose_value=False),
    click.option("--erlang-cookie", hidden=True, expose_value=False),
    click.option("--script-name", hidden=True, expose_value=False),
    click.option("--print-stacktrace", is_flag=True, hidden=True, expose_value=False),
)


def command(
    name: str, arguments: str = "", codes: dict[type[ManagementError], int] | None = None
) -> Callable[..., click.Command]:
    """For a function of a `CtlCall` and its own parameters. `arguments`: names of those that are no options, in their
    order, in brackets if they may be left out. `codes`: exit codes of refusals that are not 69."""
    own_arguments = together(
        *(click.argument(each.strip("[]"), required=not each.startswith("[")) for each in arguments.split())
    )

    def made(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def run(
            data_dir: Path,
            vhost: str,
            timeout: float | None,
            quiet: bool,
            silent: bool,
            formatter: str,
            no_table_headers: bool,
            **own: Any,
        ) -> None:
            call = CtlCall(data_dir, vhost, timeout, CtlOutput(quiet, silent, formatter, not no_table_headers))
            try:
                function(call, **own)
            except Failed as error:
                complain(str(error), error.code)
            except click.UsageError:
                raise
            except click.ClickException as error:
                complain(error.format_message(), UNAVAILABLE)
            except ManagementError as error:
                code = next((code for kind, code in (codes or {}).items() if isinstance(error, kind)), UNAVAILABLE)
                complain(str(error), code)

        return click.command(name)(common_options(own_arguments(run)))

    return made


def complain(text: str, code: int) -> NoReturn:
    click.echo(escaped_lines(f"Error:\n{text}"), err=True)
    click.get_current_context().exit(code)


@contextmanager
def _kinds() -> Iterator[None]:
    """Other commands have one exit code for every refusal: here its kind counts."""
    try:
        yield
    except click.ClickException as error:
        if isinstance(error.__cause__, ManagementError):
            raise error.__cause__ from None
        raise
