"""Options and arguments that many commands have.

What comes in: text from the command line. What goes out: values; or one sentence, exit code 1.
Not here: what is printed (`tables.py`), what is done (`amqpd/management/`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from amqpd.datadir.disk_record import directory_in_use


def data_dir_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flag that every command has; without it, the data directory of the settings."""

    def resolve(context: click.Context, _: click.Parameter, value: Path | None) -> Path:
        found: Path = value if value is not None else context.obj.data_dir
        return directory_in_use(found)

    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path),
        metavar="DIR",
        callback=resolve,
        help="The broker's data directory.  [default: as in the settings]",
    )(command)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print a JSON array of objects, for programs.")(
        command
    )


def json_value(what: str, text: str) -> Any:
    """What the JSON text says. Raises ClickException."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"the {what} is not JSON: {error}; a text has quotes: '\"text\"'") from error


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number in JSON")
