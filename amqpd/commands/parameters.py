"""`amqpd parameter` and `amqpd global-parameter`: values that components of the broker look up by name.

What comes in: names, values as JSON. What goes out: parameters set and cleared; lists.
Not here: what is checked and done (`amqpd/management/metadata/parameters.py`); policies and limits have commands of
their own.
"""

from __future__ import annotations

from pathlib import Path

import click

from amqpd.commands.metadata import carry_out
from amqpd.commands.options import data_dir_option, json_option, json_value
from amqpd.commands.tables import json_cells, show
from amqpd.management.metadata import parameters


@click.group()
def parameter() -> None:
    """Set values that components of the broker look up in a virtual host.

    \b
    Components:
      vhost-limits      name: limits; easier with `amqpd limits`
      unroutable        name: default; what to do with a message that no queue takes, unless a policy of the
                        exchange says it: "drop", "nack" or the name of an exchange

    Shovels and federation, which RabbitMQ's plugins keep here, do not run, and their parameters are refused.

    \b
    Examples:
      amqpd parameter set / unroutable default '"nack"'
      amqpd parameter list
    """


@parameter.command("set")
@click.argument("vhost")
@click.argument("component")
@click.argument("name")
@click.argument("value")
@data_dir_option
def set_parameter(vhost: str, component: str, name: str, value: str, data_dir: Path) -> None:
    """Set the parameter NAME of COMPONENT in VHOST to VALUE, which is JSON: a text has quotes of its own.

    \b
    Examples:
      amqpd parameter set / unroutable default '"nack"'
      amqpd parameter set orders vhost-limits limits '{"max-queues": 1000}'
    """
    carry_out(data_dir, parameters.put, vhost, component, name, json_value("value", value))
    click.echo(f"set the parameter '{name}' of {component} in virtual host '{vhost}'")


@parameter.command()
@click.argument("vhost")
@click.argument("component")
@click.argument("name")
@data_dir_option
def clear(vhost: str, component: str, name: str, data_dir: Path) -> None:
    """Take the parameter NAME of COMPONENT out of VHOST.

    \b
    Example:
      amqpd parameter clear / unroutable default
    """
    carry_out(data_dir, parameters.clear, vhost, component, name)
    click.echo(f"cleared the parameter '{name}' of {component} in virtual host '{vhost}'")


@parameter.command("list")
@click.option("--vhost", help="Only of this virtual host.")
@json_option
@data_dir_option
def list_parameters(vhost: str | None, as_json: bool, data_dir: Path) -> None:
    """List the parameters of virtual hosts.

    \b
    Example:
      amqpd parameter list --vhost / --json
    """
    rows = carry_out(data_dir, parameters.listed, vhost)
    show(json_cells(rows, "value", as_json), ("vhost", "component", "name", "value"), as_json)


@click.group("global-parameter")
def global_parameter() -> None:
    """Set values that belong to no virtual host.

    The broker looks at none of them now; tools keep what is theirs there, such as the cluster's name.

    \b
    Examples:
      amqpd global-parameter set cluster_name '"shop, production"'
      amqpd global-parameter list
    """


@global_parameter.command("set")
@click.argument("name")
@click.argument("value")
@data_dir_option
def set_global(name: str, value: str, data_dir: Path) -> None:
    """Set the global parameter NAME to VALUE, which is JSON: a text has quotes of its own.

    \b
    Example:
      amqpd global-parameter set cluster_tags '{"region": "eu"}'
    """
    carry_out(data_dir, parameters.put_global, name, json_value("value", value))
    click.echo(f"set the global parameter '{name}'")


@global_parameter.command("clear")
@click.argument("name")
@data_dir_option
def clear_global(name: str, data_dir: Path) -> None:
    """Take the global parameter NAME away.

    \b
    Example:
      amqpd global-parameter clear cluster_tags
    """
    carry_out(data_dir, parameters.clear_global, name)
    click.echo(f"cleared the global parameter '{name}'")


@global_parameter.command("list")
@json_option
@data_dir_option
def list_global(as_json: bool, data_dir: Path) -> None:
    """List the global parameters.

    \b
    Example:
      amqpd global-parameter list --json
    """
    rows = carry_out(data_dir, parameters.listed_global)
    show(json_cells(rows, "value", as_json), ("name", "value"), as_json)
