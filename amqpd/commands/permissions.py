"""`amqpd permission`: what users may do in a virtual host.

What comes in: names and regular expressions. What goes out: changed records; lists.
Rules: 1. A pattern that the broker could not use is refused here, with the reason. 2. Permissions are for
users and virtual hosts that exist.
Not here: what the patterns are held against, and when (`security/access.py`).
"""

from __future__ import annotations

from pathlib import Path

import click

from amqpd.commands.metadata import (
    Plan,
    change,
    check_filter,
    data_dir_option,
    found_user,
    found_vhost,
    json_option,
    read,
    show,
)
from amqpd.security.access import compile_pattern
from amqpd.topology.expressions import PatternError
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Delete, PermissionRecord, Put, TopicPermissionRecord


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
    _check_patterns(configure=configure, write=write, read=read)

    def plan(topology: Topology) -> Plan:
        on, to = found_vhost(topology, vhost), found_user(topology, user)
        return Plan([Put(PermissionRecord(user, vhost, configure, write, read))], [on.key, to.key])

    change(data_dir, plan)
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

    def plan(topology: Topology) -> Plan:
        if (vhost, user) not in topology.permissions:
            raise click.ClickException(f"user '{user}' has no permissions in virtual host '{vhost}'")
        return Plan([Delete(topology.permissions[vhost, user].key)])

    change(data_dir, plan)
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
    topology = read(data_dir)
    check_filter(topology, vhost, user)
    rows = [
        {
            "vhost": record.vhost,
            "user": record.user,
            "configure": record.configure,
            "write": record.write,
            "read": record.read,
        }
        for _, record in sorted(topology.permissions.items())
        if vhost in (None, record.vhost) and user in (None, record.user)
    ]
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
    _check_patterns(write=write, read=read)
    if not exchange:
        raise click.ClickException("topic permissions are for topic exchanges, the default exchange is none")

    def plan(topology: Topology) -> Plan:
        on, to = found_vhost(topology, vhost), found_user(topology, user)
        return Plan([Put(TopicPermissionRecord(user, vhost, exchange, write, read))], [on.key, to.key])

    change(data_dir, plan)
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

    def plan(topology: Topology) -> Plan:
        held = topology.topic_permissions.get((vhost, user), {})
        chosen = [record for name, record in held.items() if exchange in (None, name)]
        if not chosen:
            on = "" if exchange is None else f" on exchange '{exchange}'"
            raise click.ClickException(f"user '{user}' has no topic permissions{on} in virtual host '{vhost}'")
        return Plan([Delete(record.key) for record in chosen])

    change(data_dir, plan)
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
    topology = read(data_dir)
    check_filter(topology, vhost, user)
    rows = [
        {
            "vhost": record.vhost,
            "user": record.user,
            "exchange": record.exchange,
            "write": record.write,
            "read": record.read,
        }
        for _, by_exchange in sorted(topology.topic_permissions.items())
        for _, record in sorted(by_exchange.items())
        if vhost in (None, record.vhost) and user in (None, record.user)
    ]
    show(rows, ("vhost", "user", "exchange", "write", "read"), as_json)


def _check_patterns(**patterns: str) -> None:
    for name, pattern in patterns.items():
        try:
            compile_pattern(pattern)
        except PatternError as error:
            raise click.ClickException(
                f"the {name} pattern '{pattern}' is not a regular expression that amqpd takes: {error}"
            ) from error
