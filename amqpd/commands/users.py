"""`amqpd user`: who may log in.

What comes in: names, tags, passwords (from a prompt, standard input, or an argument). What goes out:
changed records; lists.
Rules: 1. Passwords are hashed here and never stored or shown. 2. Every mistake is one sentence.
Not here: what users may do (`permissions.py`), how a change reaches the broker (`metadata.py`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from amqpd.commands.metadata import (
    Plan,
    change,
    check_name,
    data_dir_option,
    found_user,
    json_option,
    read,
    show,
    sweep,
)
from amqpd.security.authentication.logins import PASSWORD_BYTES_MAX
from amqpd.security.authentication.passwords import hash_password
from amqpd.topology.plans import delete_user
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Put, UserRecord


@click.group()
def user() -> None:
    """Add, change, list and delete users.

    A user logs in with a password, or with a client certificate that bears its name. Logging in is not
    enough: say with `amqpd permission set` which virtual hosts it may enter.

    \b
    Example, a user that may do everything in /:
      amqpd user add alice
      amqpd permission set / alice '.*' '.*' '.*'
    """


def password_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--no-password", is_flag=True, help="Log-in by client certificate (EXTERNAL) only.")(
        command
    )
    command = click.option("--password-stdin", is_flag=True, help="Read the password from standard input, one line.")(
        command
    )
    return click.argument("password", required=False)(command)


@user.command()
@click.argument("name")
@password_options
@click.option("--tag", "tags", multiple=True, metavar="T", help="Give the user this tag; may be repeated.")
@data_dir_option
def add(
    name: str,
    password: str | None,
    password_stdin: bool,
    no_password: bool,
    tags: tuple[str, ...],
    data_dir: Path,
) -> None:
    """Add the user NAME.

    Without PASSWORD and flags, the password is asked for. A PASSWORD argument is taken as rabbitmqctl takes
    it, but other users of this machine can read it in the list of processes, and it stays in your shell's
    history.

    Tags say what a user may do in the management interface: administrator, monitoring, policymaker,
    management; impersonator lets it publish under other names.

    \b
    Examples:
      amqpd user add alice
      amqpd user add bob --tag monitoring --password-stdin < bob.secret
      amqpd user add sensor-7.example.com --no-password
    """
    check_name("user", name)
    tags = _checked_tags(tags)

    def plan(topology: Topology) -> Plan:
        if name in topology.users:
            raise click.ClickException(f"there is a user '{name}' already")
        return Plan([Put(UserRecord(name, password_hash, tags), create=True)])

    # Known before anybody is asked for a password.
    password_hash = ""
    plan(read(data_dir))
    password_hash = _password_hash(password, password_stdin, no_password)
    change(data_dir, plan)
    click.echo(f"added user '{name}'; what it may do says `amqpd permission set`")


@user.command()
@click.argument("name")
@password_options
@data_dir_option
def passwd(name: str, password: str | None, password_stdin: bool, no_password: bool, data_dir: Path) -> None:
    """Change the password of the user NAME.

    Without PASSWORD and flags, the password is asked for. About a PASSWORD argument see `amqpd user add
    --help`. Connections that are open stay open.

    \b
    Examples:
      amqpd user passwd alice
      amqpd user passwd alice --password-stdin < alice.secret
    """

    def plan(topology: Topology) -> Plan:
        return Plan([Put(replace(found_user(topology, name), password_hash=password_hash))])

    password_hash = ""
    plan(read(data_dir))
    password_hash = _password_hash(password, password_stdin, no_password)
    change(data_dir, plan)
    click.echo(f"changed the password of user '{name}'" if password_hash else f"user '{name}' has no password now")


@user.command()
@click.argument("name")
@data_dir_option
def delete(name: str, data_dir: Path) -> None:
    """Delete the user NAME and its permissions.

    \b
    Example:
      amqpd user delete guest
    """

    def plan(topology: Topology) -> Plan:
        return Plan(delete_user(topology, found_user(topology, name).name))

    change(data_dir, plan)
    sweep(data_dir)
    click.echo(f"deleted user '{name}'")


@user.command()
@click.argument("name")
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@data_dir_option
def tags(name: str, tags: tuple[str, ...], data_dir: Path) -> None:
    """Give the user NAME these tags instead of those that it has; without TAG, none.

    \b
    Examples:
      amqpd user tags alice administrator
      amqpd user tags bob monitoring policymaker
      amqpd user tags carol
    """
    tags = _checked_tags(tags)
    change(data_dir, lambda topology: Plan([Put(replace(found_user(topology, name), tags=tags))]))
    click.echo(f"user '{name}' has the tags {', '.join(tags)}" if tags else f"user '{name}' has no tags")


@user.command("list")
@json_option
@data_dir_option
def list_users(as_json: bool, data_dir: Path) -> None:
    """List the users: name, tags, and whether there is a password.

    \b
    Example:
      amqpd user list --json
    """
    users = read(data_dir).users
    rows = [
        {"name": name, "tags": list(users[name].tags), "password": bool(users[name].password_hash)}
        for name in sorted(users)
    ]
    show(rows, ("name", "tags", "password"), as_json)


def _checked_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    for tag in tags:
        check_name("tag", tag)
        if "," in tag or tag != tag.strip():
            raise click.ClickException(f"'{tag}' cannot be a tag: a tag has no commas, and no spaces at its ends")
    return tuple(dict.fromkeys(tags))


def _password_hash(password: str | None, from_stdin: bool, none: bool) -> str:
    """Asks for the password, or takes it from where it was said to be; empty for `none`."""
    if (password is not None) + from_stdin + none > 1:
        raise click.UsageError("give the password once: PASSWORD, --password-stdin or --no-password")
    if none:
        return ""
    if from_stdin:
        secret = sys.stdin.buffer.readline(PASSWORD_BYTES_MAX + 2).rstrip(b"\r\n")
    elif password is not None:
        secret = os.fsencode(password)
    else:
        secret = os.fsencode(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    if not secret:
        raise click.ClickException("an empty password lets nobody in: for certificates only, say --no-password")
    if len(secret) > PASSWORD_BYTES_MAX:
        raise click.ClickException(f"the password is longer than {PASSWORD_BYTES_MAX} bytes")
    return hash_password(secret)
