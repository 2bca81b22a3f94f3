"""`amqpd ctl`: the node and its cluster, and definitions.

What comes in: rabbitmqctl's words. What goes out: what is known of the node; files.
Not here: `amqpd status`, `cluster` and `definitions`, which say more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from amqpd import __version__
from amqpd.commands.ctl.acts import nodes_running
from amqpd.commands.ctl.call import DATA, USAGE, CtlCall, Failed, command
from amqpd.commands.definitions import read_file, warn_of, write
from amqpd.management import feature_flags
from amqpd.management.errors import BadArgument
from amqpd.management.feature_flags import ALL
from amqpd.management.metadata import definitions
from amqpd.vocabulary.escapes import readable_json


@command("version")
def version(call: CtlCall) -> None:
    """Say which version this is."""
    call.said.result(__version__)


@command("status")
def status(call: CtlCall) -> None:
    """Show the node: alarms, what is open, what is in memory."""
    found = call.ask("status")
    if call.said.formatter == "json":
        call.said.result(json.dumps({**found, "amqpd_version": __version__}))
        return
    call.said.sentence(f"Status of node {found['node']} ...")
    call.said.result(f"Runtime\n\namqpd version: {__version__}\nNode name: {found['node']}")
    alarms = ", ".join(found["alarms"]) or "(none)"
    call.said.result(f"\nAlarms\n\n{alarms}")
    totals = {"Connection count": "connections", "Queue count": "queues", "Virtual host count": "vhosts"}
    lines = "\n".join(f"{name}: {found[key]}" for name, key in totals.items())
    call.said.result(f"\nTotals\n\n{lines}")


@command("cluster_status")
def cluster_status(call: CtlCall) -> None:
    """Show the nodes of the cluster."""
    found = call.ask("status")
    running, alarms = nodes_running(found), found["alarms_of_nodes"]
    if call.said.formatter == "json":
        names = sorted({each["name"] for each in alarms})
        call.said.result(readable_json({"running_nodes": running, "alarms": names}))
        return
    call.said.sentence(f"Cluster status of node {found['node']} ...")
    call.said.result("Running Nodes\n\n" + "\n".join(running))
    on = [f"{each['name']} alarm on node {each['node']}" for each in alarms]
    call.said.result("\nAlarms\n\n" + ("\n".join(on) or "(none)"))


@command("enable_feature_flag")
@click.option("--opt-in", is_flag=True, hidden=True)
@click.option("--experimental", is_flag=True, hidden=True)
@click.argument("feature_flag")
def enable_feature_flag(call: CtlCall, feature_flag: str, **_: bool) -> None:
    """Enable a feature flag, or `all`: each is on from the beginning, so nothing changes."""
    if feature_flag == ALL:
        call.said.sentence("Enabling all feature flags ...")
        return
    call.said.sentence(f'Enabling feature flag "{feature_flag}" ...')
    try:
        feature_flags.enable(feature_flag)
    except BadArgument:
        raise Failed(f"This feature flag is not supported: '{feature_flag}'", USAGE) from None


@command("export_definitions")
@click.argument("path")
@click.option("--format", "kind", type=click.Choice(("json",)), default="json")
def export_definitions(call: CtlCall, path: str, kind: str) -> None:
    """Write all definitions to a file; - is standard output."""
    text = call.change(definitions.exported)
    warn_of(text)
    if path == "-":
        call.said.result(text)
        return
    call.said.sentence(f'Exporting definitions in JSON to a file at "{path}" ...')
    try:
        write(Path(path), text)
    except click.ClickException as error:
        raise Failed(error.format_message(), DATA) from None


@command("import_definitions")
@click.argument("path", required=False)
@click.option("--format", "kind", type=click.Choice(("json",)), default="json")
@click.option("--skip-if-unchanged", is_flag=True)
def import_definitions(call: CtlCall, path: str | None, kind: str, **_: Any) -> None:
    """Make the broker have what a file says, or standard input. What is there otherwise stays so."""
    said = "standard input" if path in (None, "-") else f'a file at "{path}"'
    call.said.sentence(f"Importing definitions in JSON from {said} ...")
    try:
        wanted = read_file(Path(path or "-"), None)
    except click.ClickException as error:
        raise Failed(error.format_message(), DATA) from None
    try:
        call.change(definitions.import_definitions, wanted, as_rabbitmq=True)
    except definitions.ImpossibleDefinitions as error:
        raise Failed(str(error), DATA) from None
    call.said.sentence("Successfully started definition import.")
