"""`amqpd limits`: how much users and virtual hosts may have, and how fast they may publish.

What comes in: names and numbers. What goes out: changed records; lists.
Rules: 1. What is not mentioned stays as it was. 2. -1 is no limit.
Not here: what happens at a limit (`amqpd/limiting/`), the limits of the whole node (`amqpd/config.py`), how a change
reaches the broker (`metadata.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from amqpd.commands.metadata import (
    Plan,
    change,
    data_dir_option,
    found_user,
    found_vhost,
    json_option,
    read,
    show,
)
from amqpd.config import parse_bytes
from amqpd.topology.limit_keys import KEYS, LIMITS, VHOST_LIMITS, LimitInvalid, Owner, check_limits, limits_of
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Change, Delete, ParameterRecord, Put

WORDS: Mapping[Owner, str] = {"vhost": "virtual host", "user": "user"}


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

    Who reaches a count is refused the next one, with RabbitMQ's error: connections and channels with 530,
    queues with 406. Who publishes faster than a rate is slowed down, not refused: the broker reads that
    connection only as fast as allowed. 0 allows none (counts only), -1 is no limit.

    \b
    Examples:
      amqpd limits set-vhost orders --max-connections 500 --max-queues 1000
      amqpd limits set-user shop --max-channels 100 --publish-rate 1000 --publish-bytes 10MB
      amqpd limits list
    """


def quota_options(command: Callable[..., Any]) -> Callable[..., Any]:
    number = click.IntRange(min=-1)
    for option in (
        click.option("--publish-bytes-burst", type=Size(), help="Bytes at once.  [default: those of a second]"),
        click.option("--publish-bytes", type=Size(), help="Bytes a second, frames and properties included."),
        click.option("--publish-rate-burst", type=number, help="Messages at once.  [default: those of a second]"),
        click.option("--publish-rate", type=number, help="Messages a second."),
    ):
        command = option(command)
    return command


def count_option(name: str, said: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(f"--{name}", type=click.IntRange(min=-1), help=said)


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
    """List the limits of virtual hosts and users; who has none is left out.

    \b
    Example:
      amqpd limits list --user shop --json
    """
    topology = read(data_dir)
    everybody = vhost is None and user is None
    names: list[tuple[Owner, str]] = []
    if everybody or vhost is not None:
        names += [("vhost", name) for name in (sorted(topology.vhosts) if vhost is None else [vhost])]
    if everybody or user is not None:
        names += [("user", name) for name in (sorted(topology.users) if user is None else [user])]
    for owner, name in names:
        _found(topology, owner, name)
    rows = [
        {"of": owner, "name": name, "limit": key, "value": value}
        for owner, name in names
        for key, value in sorted(limits_of(topology, owner, name).items())
    ]
    show(rows, ("of", "name", "limit", "value"), as_json)


def _set(data_dir: Path, owner: Owner, name: str, wanted: Mapping[str, int | None]) -> None:
    given = {key.replace("_", "-"): value for key, value in wanted.items() if value is not None}
    if not given:
        raise click.UsageError(f"say which limit: --{', --'.join(KEYS[owner])}")

    def plan(topology: Topology) -> Plan:
        _found(topology, owner, name)
        changed = {**limits_of(topology, owner, name), **given}
        try:
            check_limits(owner, changed)
        except LimitInvalid as error:
            raise click.ClickException(str(error)) from error
        return _stored(topology, owner, name, changed)

    change(data_dir, plan)
    click.echo(f"set {', '.join(given)} of {WORDS[owner]} '{name}'")


def _clear(data_dir: Path, owner: Owner, name: str, keys: tuple[str, ...]) -> None:
    unknown = [key for key in keys if key not in KEYS[owner]]
    if unknown:
        raise click.ClickException(
            f"'{unknown[0]}' is no limit of a {WORDS[owner]}; there are {', '.join(KEYS[owner])}"
        )

    def plan(topology: Topology) -> Plan:
        _found(topology, owner, name)
        left = {key: value for key, value in limits_of(topology, owner, name).items() if keys and key not in keys}
        return _stored(topology, owner, name, left)

    change(data_dir, plan)
    click.echo(f"cleared {', '.join(keys) or 'all limits'} of {WORDS[owner]} '{name}'")


def _found(topology: Topology, owner: Owner, name: str) -> None:
    if owner == "user":
        found_user(topology, name)
    else:
        found_vhost(topology, name)


def _stored(topology: Topology, owner: Owner, name: str, changed: Mapping[str, Any]) -> Plan:
    if owner == "user":
        user = topology.users[name]
        return Plan([Put(replace(user, limits=dict(changed)))], [user.key])
    parameter = ParameterRecord(name, VHOST_LIMITS, LIMITS, dict(changed))
    written: Change = Put(parameter) if changed else Delete(parameter.key)
    return Plan([written], [topology.vhost_records[name].key])
