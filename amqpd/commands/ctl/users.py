"""`amqpd ctl`: users, what they may do, and their limits.

What comes in: rabbitmqctl's words. What goes out: changed metadata; lists.
Not here: what is checked and done (`amqpd/management/`).
"""

from __future__ import annotations

import os
import sys

import click

from amqpd.commands.ctl.call import DATA, NO_USER, SOFTWARE, CtlCall, Failed, command
from amqpd.commands.ctl.output import Document, Tags, term
from amqpd.commands.options import json_value
from amqpd.management.errors import AlreadyExists, NotFound
from amqpd.management.metadata import limits, permissions, users
from amqpd.security.authentication.logins import PASSWORD_BYTES_MAX


def _password(given: str | None) -> bytes:
    if given is not None:
        return os.fsencode(given)
    if sys.stdin.isatty():
        return os.fsencode(click.prompt("Password", hide_input=True))
    return sys.stdin.buffer.readline(PASSWORD_BYTES_MAX + 2).rstrip(b"\r\n")


@command("add_user", "username [password]", {AlreadyExists: SOFTWARE})
def add_user(call: CtlCall, username: str, password: str | None) -> None:
    """Add a user, without permissions.

    Without PASSWORD it is read from standard input.
    """
    call.output.sentence(f'Adding user "{username}" ...')
    call.change(users.add, username, _password(password))
    call.output.sentence("Done. Don't forget to grant the user permissions: see 'amqpd ctl help set_permissions'.")


@command("authenticate_user", "username [password]")
def authenticate_user(call: CtlCall, username: str, password: str | None) -> None:
    """Say by the exit code whether the password is the user's."""
    call.output.sentence(f'Authenticating user "{username}" ...')
    if not call.change(users.authenticated, username, _password(password)):
        raise Failed(
            f"Error: failed to authenticate user \"{username}\"\nuser '{username}' - invalid credentials", DATA
        )
    call.output.result("Success")


@command("change_password", "username [password]", {NotFound: NO_USER})
def change_password(call: CtlCall, username: str, password: str | None) -> None:
    """Change a user's password."""
    call.output.sentence(f'Changing password for user "{username}" ...')
    call.change(users.set_password, username, _password(password))


@command("clear_password", "username", {NotFound: NO_USER})
def clear_password(call: CtlCall, username: str) -> None:
    """Let the user log in by client certificate only."""
    call.output.sentence(f'Clearing password for user "{username}" ...')
    call.change(users.set_password, username, None)


@command("delete_user", "username", {NotFound: NO_USER})
def delete_user(call: CtlCall, username: str) -> None:
    """Delete a user."""
    call.output.sentence(f'Deleting user "{username}" ...')
    call.change(users.delete, username)


@command("set_user_tags", "username", {NotFound: NO_USER})
@click.argument("tags", nargs=-1)
def set_user_tags(call: CtlCall, username: str, tags: tuple[str, ...]) -> None:
    """Give a user these tags instead of those that it has."""
    call.output.sentence(f'Setting tags for user "{username}" to [{", ".join(tags)}] ...')
    call.change(users.set_tags, username, [tag for each in tags for tag in each.split(",") if tag])


@command("list_users")
def list_users(call: CtlCall) -> None:
    """List users and their tags."""
    call.output.sentence("Listing users ...")
    found = call.change(users.listed)
    call.output.rows([{"user": row["name"], "tags": Tags(row["tags"])} for row in found], ("user", "tags"))


@command("set_permissions", "username configure write read")
def set_permissions(call: CtlCall, username: str, configure: str, write: str, read: str) -> None:
    """Say what a user may do in a virtual host."""
    call.output.sentence(f'Setting permissions for user "{username}" in vhost "{call.vhost}" ...')
    call.change(permissions.put, call.vhost, username, configure, write, read)


@command("clear_permissions", "username")
def clear_permissions(call: CtlCall, username: str) -> None:
    """Keep a user out of a virtual host."""
    call.output.sentence(f'Clearing permissions for user "{username}" in vhost "{call.vhost}" ...')
    if call.change(permissions.listed, call.vhost, username):
        call.change(permissions.clear, call.vhost, username)


@command("list_permissions")
def list_permissions(call: CtlCall) -> None:
    """List who may do what in a virtual host."""
    call.output.sentence(f'Listing permissions for vhost "{call.vhost}" ...')
    call.output.rows(call.change(permissions.listed, call.vhost), ("user", "configure", "write", "read"))


@command("list_user_permissions", "username")
def list_user_permissions(call: CtlCall, username: str) -> None:
    """List what a user may do in all virtual hosts."""
    call.output.sentence(f'Listing permissions for user "{username}" ...')
    call.output.rows(call.change(permissions.listed, None, username), ("vhost", "configure", "write", "read"))


@command("set_topic_permissions", "username exchange write read")
def set_topic_permissions(call: CtlCall, username: str, exchange: str, write: str, read: str) -> None:
    """Say which routing keys a user may use on a topic exchange."""
    call.output.sentence(
        f'Setting topic permissions on "{exchange}" for user "{username}" in vhost "{call.vhost}" ...'
    )
    call.change(permissions.put_topic, call.vhost, username, exchange, write, read)


@command("clear_topic_permissions", "username [exchange]")
def clear_topic_permissions(call: CtlCall, username: str, exchange: str | None) -> None:
    """Lift what was said of a user's routing keys, on one exchange or on all."""
    on = f' on "{exchange}"' if exchange is not None else ""
    call.output.sentence(f'Clearing topic permissions{on} for user "{username}" in vhost "{call.vhost}" ...')
    if any(
        exchange in (None, row["exchange"]) for row in call.change(permissions.listed_topics, call.vhost, username)
    ):
        call.change(permissions.clear_topic, call.vhost, username, exchange)


@command("list_topic_permissions")
def list_topic_permissions(call: CtlCall) -> None:
    """List topic permissions in a virtual host."""
    call.output.sentence(f'Listing topic permissions for vhost "{call.vhost}" ...')
    call.output.rows(call.change(permissions.listed_topics, call.vhost), ("user", "exchange", "write", "read"))


@command("list_user_topic_permissions", "username")
def list_user_topic_permissions(call: CtlCall, username: str) -> None:
    """List a user's topic permissions in all virtual hosts."""
    call.output.sentence(f'Listing topic permissions for user "{username}" ...')
    call.output.rows(call.change(permissions.listed_topics, None, username), ("vhost", "exchange", "write", "read"))


@command("set_user_limits", "username definition")
def set_user_limits(call: CtlCall, username: str, definition: str) -> None:
    """Set limits of a user, by an object of JSON: max-connections, max-channels."""
    call.output.sentence(f'Setting user limits to "{definition}" for user "{username}" ...')
    call.change(limits.put, "user", username, json_value("definition", definition))


@command("clear_user_limits", "username limit")
def clear_user_limits(call: CtlCall, username: str, limit: str) -> None:
    """Lift a limit of a user, or all."""
    call.output.sentence(f'Clearing "{limit}" limit for user "{username}" ...')
    call.change(limits.clear, "user", username, () if limit == "all" else (limit,))


@command("list_user_limits")
@click.option("--user", "username", default="guest")
@click.option("--global", "every", is_flag=True)
def list_user_limits(call: CtlCall, username: str, every: bool) -> None:
    """List the limits of one user, or of all."""
    whose = "all users" if every else f'user "{username}"'
    call.output.sentence(f"Listing limits for {whose} ...")
    found = call.change(limits.listed, None, None if every else username)
    by_user: dict[str, Document] = {}
    for row in found:
        if row["of"] == "user":
            by_user.setdefault(row["name"], Document())[row["limit"]] = row["value"]
    if every:
        call.output.rows(
            [{"user": name, "limits": each} for name, each in sorted(by_user.items())], ("user", "limits")
        )
    elif call.output.as_json:
        call.output.object({"message": term(by_user.get(username, Document()))})
    else:
        call.output.result(term(by_user.get(username, Document())))
