"""`amqpd parameter` and `amqpd global-parameter`: values that components of the broker look up by name.

What comes in: names, values as JSON. What goes out: changed records; lists.
Rules: 1. What nothing would look at is refused. 2. Policies and limits have commands of their own.
Not here: the components (`topology/parameters.py`), how a change reaches the broker (`metadata.py`).
"""

from __future__ import annotations

from pathlib import Path

import click

from amqpd.commands.metadata import (
    Plan,
    change,
    check_filter,
    check_name,
    data_dir_option,
    found_vhost,
    json_cell,
    json_option,
    json_value,
    read,
    show,
)
from amqpd.topology.parameters import KEPT_FOR_OTHERS, ParameterInvalid, check_parameter
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Delete, ParameterRecord, Put


@click.group()
def parameter() -> None:
    """Set values that components of the broker look up in a virtual host.

    \b
    Components:
      vhost-limits      name: limits; easier with `amqpd limits`
      unroutable        name: default; what to do with a message that no queue takes, unless a policy of the
                        exchange says it: "drop", "nack" or the name of an exchange
      federation-upstream, federation-upstream-set, shovel
                        RabbitMQ's plugins; kept for definition files, and nothing is done with them

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
    check_name("parameter", name)
    record = ParameterRecord(vhost, component, name, json_value("value", value))

    def plan(topology: Topology) -> Plan:
        on = found_vhost(topology, vhost)
        try:
            check_parameter(record)
        except ParameterInvalid as error:
            raise click.ClickException(f"the parameter is not valid: {error}") from error
        return Plan([Put(record)], [on.key])

    change(data_dir, plan)
    note = "; it is kept, and nothing is done with it" if component in KEPT_FOR_OTHERS else ""
    click.echo(f"set the parameter '{name}' of {component} in virtual host '{vhost}'{note}")


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

    def plan(topology: Topology) -> Plan:
        found_vhost(topology, vhost)
        found = topology.vhosts[vhost].parameters.get((component, name))
        if found is None:
            raise click.ClickException(f"there is no parameter '{name}' of {component} in virtual host '{vhost}'")
        return Plan([Delete(found.key)])

    change(data_dir, plan)
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
    topology = read(data_dir)
    check_filter(topology, vhost)
    rows = [
        {"vhost": at, "component": record.component, "name": record.name, "value": json_cell(record.value, as_json)}
        for at in sorted(topology.vhosts)
        if vhost in (None, at)
        for _, record in sorted(topology.vhosts[at].parameters.items())
    ]
    show(rows, ("vhost", "component", "name", "value"), as_json)


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
    check_name("parameter", name)
    record = ParameterRecord("", "", name, json_value("value", value))
    change(data_dir, lambda _: Plan([Put(record)]))
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

    def plan(topology: Topology) -> Plan:
        found = topology.global_parameters.get(("", name))
        if found is None:
            raise click.ClickException(f"there is no global parameter '{name}'")
        return Plan([Delete(found.key)])

    change(data_dir, plan)
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
    found = sorted(read(data_dir).global_parameters.items())
    rows = [{"name": record.name, "value": json_cell(record.value, as_json)} for _, record in found]
    show(rows, ("name", "value"), as_json)
