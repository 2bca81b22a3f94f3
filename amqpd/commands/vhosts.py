"""`amqpd vhost`: virtual hosts.

What comes in: names. What goes out: virtual hosts added and deleted; lists.
Not here: what is checked and done (`amqpd/management/metadata/vhosts.py`), who may enter (`permissions.py`).
"""

from __future__ import annotations

from pathlib import Path

import click

from amqpd.commands.metadata import carry_out
from amqpd.commands.options import data_dir_option, json_option
from amqpd.commands.tables import show
from amqpd.management.metadata import vhosts


@click.group()
def vhost() -> None:
    """Add, list and delete virtual hosts.

    A virtual host has its own exchanges, queues and permissions; a client enters one of them. `/` is there
    from the beginning.

    \b
    Example:
      amqpd vhost add orders
      amqpd permission set orders alice '.*' '.*' '.*'
    """


@vhost.command()
@click.argument("name")
@click.option("--description", default="", help="A few words for people.")
@click.option(
    "--default-queue-type",
    type=click.Choice(vhosts.QUEUE_TYPES),
    help="Of durable queues that name no type and are neither exclusive nor auto-delete.  [default: classic]",
)
@data_dir_option
def add(name: str, description: str, default_queue_type: str | None, data_dir: Path) -> None:
    """Add the virtual host NAME.

    \b
    Examples:
      amqpd vhost add orders --description 'the shop, production'
      amqpd vhost add orders --default-queue-type quorum
    """
    carry_out(data_dir, vhosts.add, name, description, default_queue_type)
    click.echo(f"added virtual host '{name}'; who may enter says `amqpd permission set`")


@vhost.command("default-queue-type")
@click.argument("name")
@click.argument("kind", metavar="TYPE", type=click.Choice(vhosts.QUEUE_TYPES))
@data_dir_option
def default_queue_type(name: str, kind: str, data_dir: Path) -> None:
    """Say of which type queues in NAME are that are declared without one: classic or quorum.

    It counts for queues that are declared from now on, if they are durable and neither exclusive nor auto-delete:
    the others are classic. A queue that is there keeps its type, and is refused to clients that declare it again
    without one, as in RabbitMQ 4.

    \b
    Example:
      amqpd vhost default-queue-type / quorum
    """
    carry_out(data_dir, vhosts.set_default_queue_type, name, kind)
    click.echo(f"queues that are declared in '{name}' without a type are {kind} ones from now on")


@vhost.command()
@click.argument("name")
@data_dir_option
def delete(name: str, data_dir: Path) -> None:
    """Delete the virtual host NAME with its exchanges, its queues, THEIR MESSAGES, and all permissions on it.

    \b
    Example:
      amqpd vhost delete orders
    """
    carry_out(data_dir, vhosts.delete, name)
    click.echo(f"deleted virtual host '{name}'")


@vhost.command("list")
@json_option
@data_dir_option
def list_vhosts(as_json: bool, data_dir: Path) -> None:
    """List the virtual hosts: name, description, and how many durable queues there are.

    \b
    Example:
      amqpd vhost list --json
    """
    show(carry_out(data_dir, vhosts.listed), ("name", "description", "queues"), as_json)
