"""Options and arguments that many commands have.

What comes in: text from the command line. What goes out: values; or one sentence, exit code 1.
Not here: what is printed (`tables.py`), what is done (`amqpd/management/`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import click

from amqpd.datadir.disk_record import directory_in_use, has_record
from amqpd.management.control.remote import REMOTE, RemoteBroker
from amqpd.management.control.socket import Place

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def data_dir_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flag that every command has; without it, the data directory of the settings. Of a node with several it is
    one that has everything, whichever is named."""
    return _data_dir(command, directory_in_use)


def this_data_dir_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same, and the command works on the directory that is named."""
    return _data_dir(command, lambda named: named)


def refuse_one_of_several(data_dir: Path, instead: str) -> None:
    """Its files are not changed by themselves: the others would have something else. Raises ClickException."""
    if has_record(data_dir):
        raise click.ClickException(f"{data_dir} is one of several data directories of a node: {instead}")


def broker_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """For commands that only ask a running broker: its data directory, or the address of `amqpd --url`."""
    return _data_dir(command, directory_in_use, remote=True)


def _data_dir(
    command: Callable[..., Any], which: Callable[[Path], Path], *, remote: bool = False
) -> Callable[..., Any]:
    def resolve(context: click.Context, _: click.Parameter, value: Path | None) -> Place:
        if (broker := context.meta.get(REMOTE)) is not None:
            if not remote or value is not None:
                raise click.UsageError("this needs the machine of the broker: use it there, without --url")
            found: RemoteBroker = broker
            return found
        named: Path = value if value is not None else context.obj.data_dir
        return which(named)

    return click.option(
        "--data-dir",
        *(["broker"] if remote else []),
        type=click.Path(path_type=Path),
        metavar="DIR",
        callback=resolve,
        help="The broker's data directory.  [default: as in the settings]",
    )(command)


def together(*options: Decorator) -> Decorator:
    """Adds all of these options and arguments, which --help shows in this order."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        return reduce(lambda done, option: option(done), reversed(options), command)

    return add


json_option = click.option("--json", "as_json", is_flag=True, help="Print a JSON array of objects, for programs.")


def json_value(what: str, text: str) -> Any:
    """What the JSON text says. Raises ClickException."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"the {what} is not JSON: {error}; a text has quotes: '\"text\"'") from error


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number in JSON")
