"""`amqpd limits`: how much users and virtual hosts may have, and how fast they may publish.

What comes in: names and numbers. What goes out: limits set and cleared; lists.
Not here: what is checked and done (`amqpd/management/metadata/limits.py`), what happens at a limit
(`amqpd/flow/`), the limits of the whole node (`amqpd/config.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from amqpd.commands.metadata import carry_out
from amqpd.commands.options import Decorator, data_dir_option, json_option, together
from amqpd.commands.tables import show
from amqpd.management.metadata import limits as use_cases
from amqpd.management.metadata.limits import WORDS
from amqpd.setting_types import parse_bytes
from amqpd.topology.limit_keys import KEYS, Owner


class Size(click.ParamType[int]):
    """Bytes, as in the settings: a number, or text such as 10MB or 64KiB."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(value) if value == "-1" else int(parse_bytes(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group()
def limits() -> None:
    """Say how much users and virtual hosts may have, and how fast they may publish.

    A user or virtual host at its count is refused the next one, with RabbitMQ's error: connections and channels with
    530, queues with 406. A publisher that is faster than its rate is slowed down, not refused: the broker reads that
    connection only as fast as allowed. 0 allows none (counts only), -1 is no limit.

    \b
    Examples:
      amqpd limits set-vhost orders --max-connections 500 --max-queues 1000
      amqpd limits set-user shop --max-channels 100 --publish-rate 1000 --publish-bytes 10MB
      amqpd limits list
    """


def count_option(name: str, said: str) -> Decorator:
    return click.option(f"--{name}", type=click.IntRange(min=-1), help=said)


quota_options = together(
    count_option("publish-rate", "Messages a second."),
    count_option("publish-rate-burst", "Messages at once.  [default: those of a second]"),
    click.option("--publish-bytes", type=Size(), help="Bytes a second, frames and properties included."),
    click.option("--publish-bytes-burst", type=Size(), help="Bytes at once.  [default: those of a second]"),
)


@limits.command("set-vhost")
@click.argument("vhost")
@count_option("max-connections", "Connections in it at a time.")
@count_option("max-queues", "Queues in it.")
@quota_options
@data_dir_option
def set_vhost(vhost: str, data_dir: Path, **wanted: int | None) -> None:
    """Set limits of VHOST. The rates are those of all its publishers together.

    Connections and queues that are there already stay, also when there are more than allowed.

    \b
    Examples:
      amqpd limits set-vhost orders --max-queues 1000
      amqpd limits set-vhost orders --publish-bytes 50MB --publish-bytes-burst 200MB
      amqpd limits set-vhost orders --max-connections -1
    """
    _set(data_dir, "vhost", vhost, wanted)


@limits.command("set-user")
@click.argument("user")
@count_option("max-connections", "Connections of the user at a time.")
@count_option("max-channels", "Channels of all its connections together.")
@quota_options
@data_dir_option
def set_user(user: str, data_dir: Path, **wanted: int | None) -> None:
    """Set limits of USER. The rates are those of all its connections together.

    Connections and channels that are open already stay, also when there are more than allowed.

    \b
    Examples:
      amqpd limits set-user shop --max-connections 10 --max-channels 100
      amqpd limits set-user shop --publish-rate 1000 --publish-bytes 10MB
      amqpd limits set-user shop --publish-rate -1
    """
    _set(data_dir, "user", user, wanted)


@limits.command("clear-vhost")
@click.argument("vhost")
@click.argument("limit", nargs=-1)
@data_dir_option
def clear_vhost(vhost: str, limit: tuple[str, ...], data_dir: Path) -> None:
    """Lift limits of VHOST: those that are named, or all.

    \b
    Examples:
      amqpd limits clear-vhost orders
      amqpd limits clear-vhost orders max-queues publish-rate
    """
    _clear(data_dir, "vhost", vhost, limit)


@limits.command("clear-user")
@click.argument("user")
@click.argument("limit", nargs=-1)
@data_dir_option
def clear_user(user: str, limit: tuple[str, ...], data_dir: Path) -> None:
    """Lift limits of USER: those that are named, or all.

    \b
    Examples:
      amqpd limits clear-user shop
      amqpd limits clear-user shop max-channels
    """
    _clear(data_dir, "user", user, limit)


@limits.command("list")
@click.option("--vhost", help="Only of this virtual host.")
@click.option("--user", help="Only of this user.")
@json_option
@data_dir_option
def list_limits(vhost: str | None, user: str | None, as_json: bool, data_dir: Path) -> None:
    """List the limits of virtual hosts and users; those without any are left out.

    \b
    Example:
      amqpd limits list --user shop --json
    """
    show(carry_out(data_dir, use_cases.listed, vhost, user), ("of", "name", "limit", "value"), as_json)


def _set(data_dir: Path, owner: Owner, name: str, wanted: Mapping[str, int | None]) -> None:
    given = {key.replace("_", "-"): value for key, value in wanted.items() if value is not None}
    if not given:
        raise click.UsageError(f"say which limit: --{', --'.join(KEYS[owner])}")
    carry_out(data_dir, use_cases.put, owner, name, given)
    click.echo(f"set {', '.join(given)} of {WORDS[owner]} '{name}'")


def _clear(data_dir: Path, owner: Owner, name: str, keys: tuple[str, ...]) -> None:
    carry_out(data_dir, use_cases.clear, owner, name, keys)
    click.echo(f"cleared {', '.join(keys) or 'all limits'} of {WORDS[owner]} '{name}'")
