"""`amqpd user`: who may log in.

What comes in: names, tags, passwords (from a prompt, standard input, or an argument). What goes out: users added,
changed and deleted; lists.
Rules: whether the request makes sense is known before somebody is asked for a password.
Not here: what is checked and done (`amqpd/management/metadata/users.py`), what users may do (`permissions.py`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from amqpd.commands.metadata import carry_out
from amqpd.commands.options import data_dir_option, json_option, together
from amqpd.commands.tables import show
from amqpd.management.metadata import users
from amqpd.security.authentication.logins import PASSWORD_BYTES_MAX
from amqpd.vocabulary.escapes import escaped


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


password_options = together(
    click.argument("password", required=False),
    click.option(
        "--for-rabbitmq",
        is_flag=True,
        help="Keep the password as RabbitMQ hashes it (SHA-256): an exported file lets the user in there, too. Who "
        "gets hold of the hash guesses it sooner.",
    ),
    click.option("--password-stdin", is_flag=True, help="Read the password from standard input, one line."),
    click.option("--no-password", is_flag=True, help="Log-in by client certificate (EXTERNAL) only."),
)


def question_tags(tags: tuple[str, ...]) -> None:
    """Asks about tags that mean nothing and resemble one that does; where nobody can answer, a warning. Raises
    Abort."""
    for tag in tags:
        meant = users.meant_tag(tag)
        if meant is None:
            continue
        doubt = f"the tag '{tag}' does nothing: did you mean '{meant}'?"
        if sys.stdin.isatty():
            click.confirm(escaped(f"{doubt} Give '{tag}' all the same?"), abort=True)
        else:
            click.echo(escaped(f"(warning) {doubt}"), err=True)


@user.command()
@click.argument("name")
@password_options
@click.option("--tag", "tags", multiple=True, metavar="T", help="Give the user this tag; may be repeated.")
@data_dir_option
def add(name: str, for_rabbitmq: bool, tags: tuple[str, ...], data_dir: Path, **secret: Any) -> None:
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
    carry_out(data_dir, users.check_new, name, tags)
    question_tags(tags)
    algorithm = users.RABBITMQ_ALGORITHM if for_rabbitmq else None
    carry_out(data_dir, users.add, name, _password(**secret), tags, algorithm)
    click.echo(f"added user '{name}'; what it may do says `amqpd permission set`")


@user.command()
@click.argument("name")
@password_options
@data_dir_option
def passwd(name: str, for_rabbitmq: bool, data_dir: Path, **secret: Any) -> None:
    """Change the password of the user NAME.

    Without PASSWORD and flags, the password is asked for. About a PASSWORD argument see `amqpd user add
    --help`. Connections that are open stay open.

    \b
    Examples:
      amqpd user passwd alice
      amqpd user passwd alice --password-stdin < alice.secret
      amqpd user passwd alice --for-rabbitmq
    """
    carry_out(data_dir, users.check_known, name)
    password = _password(**secret)
    carry_out(data_dir, users.set_password, name, password, users.RABBITMQ_ALGORITHM if for_rabbitmq else None)
    click.echo(f"changed the password of user '{name}'" if password else f"user '{name}' has no password now")


@user.command()
@click.argument("name")
@data_dir_option
def delete(name: str, data_dir: Path) -> None:
    """Delete the user NAME and its permissions.

    \b
    Example:
      amqpd user delete guest
    """
    carry_out(data_dir, users.delete, name)
    click.echo(f"deleted user '{name}'")


@user.command()
@click.argument("name")
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@data_dir_option
def tags(name: str, tags: tuple[str, ...], data_dir: Path) -> None:
    """Give the user NAME these tags instead of those that it has; without TAG, none.

    administrator, monitoring, policymaker, management and impersonator mean something; one that resembles them
    is asked about.

    \b
    Examples:
      amqpd user tags alice administrator
      amqpd user tags bob monitoring policymaker
      amqpd user tags carol
    """
    question_tags(tags)
    tags = carry_out(data_dir, users.set_tags, name, tags)
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
    show(carry_out(data_dir, users.listed), ("name", "tags", "password"), as_json)


def _password(password: str | None, password_stdin: bool, no_password: bool) -> bytes | None:
    """Asks for the password, or takes it from where it was said to be; None for `no_password`."""
    if (password is not None) + password_stdin + no_password > 1:
        raise click.UsageError("give the password once: PASSWORD, --password-stdin or --no-password")
    if no_password:
        return None
    if password_stdin:
        # One byte more than it may have: the use case says that it is too long.
        return sys.stdin.buffer.readline(PASSWORD_BYTES_MAX + 2).rstrip(b"\r\n")
    if password is not None:
        return os.fsencode(password)
    return os.fsencode(click.prompt("Password", hide_input=True, confirmation_prompt=True))
