"""`amqpd vhost`: virtual hosts.

What comes in: names. What goes out: changed records; lists.
Rules: 1. A new virtual host has the predeclared exchanges. 2. With a virtual host goes everything in it.
Not here: who may enter (`permissions.py`), how a change reaches the broker (`metadata.py`).
"""

from __future__ import annotations

from pathlib import Path

import click

from amqpd.commands.metadata import (
    Plan,
    change,
    check_name,
    data_dir_option,
    found_vhost,
    json_option,
    read,
    show,
    sweep,
)
from amqpd.topology.plans import create_vhost, delete_vhost
from amqpd.topology.state import Topology


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
@data_dir_option
def add(name: str, description: str, data_dir: Path) -> None:
    """Add the virtual host NAME.

    \b
    Example:
      amqpd vhost add orders --description 'the shop, production'
    """
    check_name("virtual host", name)

    def plan(topology: Topology) -> Plan:
        if name in topology.vhost_records:
            raise click.ClickException(f"there is a virtual host '{name}' already")
        return Plan(create_vhost(name, description))

    change(data_dir, plan)
    click.echo(f"added virtual host '{name}'; who may enter says `amqpd permission set`")


@vhost.command()
@click.argument("name")
@data_dir_option
def delete(name: str, data_dir: Path) -> None:
    """Delete the virtual host NAME with its exchanges, its queues, THEIR MESSAGES, and all permissions on it.

    \b
    Example:
      amqpd vhost delete orders
    """

    def plan(topology: Topology) -> Plan:
        return Plan(delete_vhost(topology, found_vhost(topology, name).name))

    change(data_dir, plan)
    sweep(data_dir)
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
    topology = read(data_dir)
    rows = [
        {
            "name": name,
            "description": topology.vhost_records[name].description,
            "queues": len(topology.vhosts[name].queues),
        }
        for name in sorted(topology.vhost_records)
    ]
    show(rows, ("name", "description", "queues"), as_json)
