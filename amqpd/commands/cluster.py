"""`amqpd cluster`: the nodes of a cluster, and which of them is the home of what.

What comes in: settings, which say where the cluster meets. What goes out: members and sources, as the store has them.
Rules: 1. The store is asked, and no broker: it works wherever the store is reached, also when all brokers are gone.
2. Nothing is changed.
Not here: what is in the rows (`amqpd/cluster/overview.py`).
"""

from __future__ import annotations

from typing import Any

import click
import trio

from amqpd.cluster.overview import home_rows, member_rows, source_rows
from amqpd.cluster.records import PREFIX
from amqpd.cluster.roster import Roster
from amqpd.commands.tables import show
from amqpd.config import Settings
from amqpd.topology.metadata.store import MetadataStoreError
from amqpd.vocabulary.endpoint import Endpoint
from amqpd.vocabulary.escapes import readable_json

MEMBERS = ("name", "state", "life", "version", "label", "region", "address", "homes", "copies")
HOMES = ("home", "sources", "numbers")


@click.group()
def cluster() -> None:
    """Look at the nodes of a cluster.

    They meet in the etcd of the setting cluster_store, which is asked; no broker has to run.

    \b
    Example:
      amqpd cluster status
    """


@cluster.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object, for programs.")
@click.pass_obj
def status(settings: Settings, as_json: bool) -> None:
    """Show members and homes.

    A member that is gone has not renewed its lease; what it is the home of waits for another home. Copies are those
    that count: a disk that was emptied, or is older than it was, has none until it has caught up.

    \b
    Examples:
      amqpd cluster status
      amqpd --config /etc/amqpd/amqpd.toml cluster status --json
    """
    roster = trio.run(_read, settings)
    if as_json:
        found = {"revision": roster.revision, "members": member_rows(roster), "sources": source_rows(roster)}
        click.echo(readable_json(found, 2))
        return
    show([_shown(row) for row in member_rows(roster)], MEMBERS, False)
    click.echo()
    show(home_rows(roster), HOMES, False)


async def _read(settings: Settings) -> Roster:
    """Raises ClickException, StartupError."""
    if not settings.cluster_store:
        raise click.ClickException("cluster_store is not set: there is no cluster to look at")
    try:
        from amqpd.process.cluster_store import store_of  # its HTTP client: only when it is needed
    except ModuleNotFoundError as error:
        raise click.ClickException(f"cluster_store needs {error.name}: pip install 'amqpd[etcd]'") from error
    roster = Roster()
    try:
        async with store_of(settings) as store:
            roster.load(await store.range(PREFIX))
    except MetadataStoreError as error:
        raise click.ClickException(str(error)) from error
    return roster


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    plain = {name: "" if value is None else value for name, value in row.items()}
    address = str(Endpoint(row["host"], row["port"])) if row["lives"] else ""
    other = row["copies_of_another_disk"]
    copies = f"{row['copies']} ({other} of another disk)" if other else row["copies"]
    return {**plain, "state": "lives" if row["lives"] else "gone", "address": address, "copies": copies}
