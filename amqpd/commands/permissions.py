"""`amqpd permission`: what users may do in a virtual host.

What comes in: names and regular expressions. What goes out: permissions set and cleared; lists.
Not here: what is checked and done (`amqpd/management/metadata/permissions.py`), what the patterns are held against,
and when (`security/access.py`).
"""

from __future__ import annotations

from pathlib import Path

import click

from amqpd.commands.metadata import carry_out
from amqpd.commands.options import data_dir_option, json_option
from amqpd.commands.tables import show
from amqpd.management.metadata import permissions


@click.group()
def permission() -> None:
    """Say what users may do in a virtual host.

    \b
    Three regular expressions say which names of exchanges and queues a user may
      configure  declare and delete,
      write      publish to, bind (the destination),
      read       consume from, get, purge, bind (the source).

    A pattern is searched for anywhere in the name: write ^ and $ where you mean the whole name. '.*' is
    every name, '' is none. The default exchange is called amq.default here. A user that has no permissions
    in a virtual host cannot enter it.

    \b
    Examples:
      amqpd permission set / alice '.*' '.*' '.*'
      amqpd permission set orders shop '' '^orders$' ''
      amqpd permission list --vhost orders
    """


@permission.command("set")
@click.argument("vhost")
@click.argument("user")
@click.argument("configure")
@click.argument("write")
@click.argument("read", metavar="READ")
@data_dir_option
def set_permission(vhost: str, user: str, configure: str, write: str, read: str, data_dir: Path) -> None:
    """Set what USER may do in VHOST, instead of what it might before. It takes effect at once.

    \b
    Examples:
      amqpd permission set / alice '.*' '.*' '.*'
      amqpd permission set / worker '^amq\\.gen' '^(amq\\.default|amq\\.gen.*)$' '^(jobs|amq\\.gen.*)$'
    """
    carry_out(data_dir, permissions.put, vhost, user, configure, write, read)
    click.echo(f"set the permissions of user '{user}' in virtual host '{vhost}'")


@permission.command()
@click.argument("vhost")
@click.argument("user")
@data_dir_option
def clear(vhost: str, user: str, data_dir: Path) -> None:
    """Take away all that USER may do in VHOST; it cannot enter any more. (Topic permissions stay.)

    \b
    Example:
      amqpd permission clear / guest
    """
    carry_out(data_dir, permissions.clear, vhost, user)
    click.echo(f"cleared the permissions of user '{user}' in virtual host '{vhost}'")


@permission.command("list")
@click.option("--vhost", help="Only in this virtual host.")
@click.option("--user", help="Only of this user.")
@json_option
@data_dir_option
def list_permissions(vhost: str | None, user: str | None, as_json: bool, data_dir: Path) -> None:
    """List who may do what where.

    \b
    Example:
      amqpd permission list --user alice --json
    """
    rows = carry_out(data_dir, permissions.listed, vhost, user)
    show(rows, ("vhost", "user", "configure", "write", "read"), as_json)


@permission.group()
def topic() -> None:
    """Narrow down the routing keys that a user may use on a topic exchange.

    Beside the permissions on the exchange itself: WRITE is held against the routing key of what is
    published, READ against the key of a binding. {username} and {vhost} in a pattern stand for the user and
    the virtual host, {client_id} for that of an MQTT client. Without a topic permission every routing key
    is allowed.

    \b
    Example, alice publishes under her own name:
      amqpd permission topic set / alice amq.topic '^{username}\\.' '.*'
    """


@topic.command("set")
@click.argument("vhost")
@click.argument("user")
@click.argument("exchange")
@click.argument("write")
@click.argument("read", metavar="READ")
@data_dir_option
def set_topic(vhost: str, user: str, exchange: str, write: str, read: str, data_dir: Path) -> None:
    """Set which routing keys USER may write to and read from the topic exchange EXCHANGE in VHOST.

    \b
    Example:
      amqpd permission topic set / alice amq.topic '^sensors\\.' '^(sensors|alerts)\\.'
    """
    carry_out(data_dir, permissions.put_topic, vhost, user, exchange, write, read)
    click.echo(f"set the topic permissions of user '{user}' on exchange '{exchange}' in virtual host '{vhost}'")


@topic.command("clear")
@click.argument("vhost")
@click.argument("user")
@click.argument("exchange", required=False)
@data_dir_option
def clear_topic(vhost: str, user: str, exchange: str | None, data_dir: Path) -> None:
    """Lift the topic permissions of USER in VHOST: on EXCHANGE, or on all exchanges. Every routing key is
    allowed then.

    \b
    Example:
      amqpd permission topic clear / alice amq.topic
    """
    carry_out(data_dir, permissions.clear_topic, vhost, user, exchange)
    click.echo(f"cleared the topic permissions of user '{user}' in virtual host '{vhost}'")


@topic.command("list")
@click.option("--vhost", help="Only in this virtual host.")
@click.option("--user", help="Only of this user.")
@json_option
@data_dir_option
def list_topics(vhost: str | None, user: str | None, as_json: bool, data_dir: Path) -> None:
    """List the topic permissions.

    \b
    Example:
      amqpd permission topic list --vhost /
    """
    rows = carry_out(data_dir, permissions.listed_topics, vhost, user)
    show(rows, ("vhost", "user", "exchange", "write", "read"), as_json)
