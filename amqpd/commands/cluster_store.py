"""How commands look at a cluster, and ask for changes of it, in the store where it meets.

What comes in: settings, what is to be done with the store; which sources are meant. What goes out: what that returns;
or one sentence, exit code 1. Sentences of progress go to standard error.
Rules: 1. No broker is needed: what is asked for is carried out by the nodes, whenever they run. 2. Ctrl-C ends the
command, and takes nothing back that was asked for.
Not here: what is asked for (`quorum_changes.py`), what only a running broker knows (`running.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import click
import trio

from amqpd.cluster.directory import RENEWED_LEASES
from amqpd.cluster.forgetting import MemberKept
from amqpd.cluster.linkage import WELL
from amqpd.cluster.moves import MoveImpossible
from amqpd.cluster.roster import Roster
from amqpd.cluster.set_requests import SetRequests
from amqpd.cluster.source_status import source_status
from amqpd.commands.options import together
from amqpd.config import Settings
from amqpd.declarations.locating import wanted_of
from amqpd.topology.metadata.codec import PREFIX, decode_record, encode_key
from amqpd.topology.metadata.reading import RecordReader
from amqpd.topology.metadata.store import MetadataStore, MetadataStoreError
from amqpd.vocabulary.escapes import escaped
from amqpd.vocabulary.records import QueueRecord, UnreadableQueue

QUEUES = "topology/queue/"
SILENT_S = 1.0
"""An etcd that takes longer may have let leases run out."""

T = TypeVar("T")


@dataclass
class OpenedClusterStore:
    """The store, and what it has of the cluster."""

    store: MetadataStore
    set_requests: SetRequests

    @property
    def roster(self) -> Roster:
        return self.set_requests.roster


def in_store(settings: Settings, act: Callable[[OpenedClusterStore], Awaitable[T]]) -> T:
    """Runs an act on the cluster's store. Raises ClickException, StartupError."""
    with _sentences():
        return trio.run(_open, settings, act)


async def _open(settings: Settings, act: Callable[[OpenedClusterStore], Awaitable[T]]) -> T:
    if not settings.cluster_store:
        raise click.ClickException("cluster_store is not set: there is no cluster to look at")
    try:
        from amqpd.process.cluster_store import store_of  # its HTTP client: only when it is needed
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"cluster_store needs {error.name}: pip install '.[etcd]' in a checkout of amqpd"
        ) from error
    began_at = trio.current_time()
    async with store_of(settings, progress) as store:
        opened = OpenedClusterStore(store, SetRequests(store, progress))
        await opened.set_requests.look()
        was_silent = began_at + SILENT_S < trio.current_time()
        await _look_again(opened, RENEWED_LEASES * settings.cluster_lease_s, was_silent)
        return await act(opened)


async def _look_again(opened: OpenedClusterStore, within_s: float, was_silent: bool) -> None:
    """Gives nodes the time to renew their leases before they, or a majority, are said to be gone: leases run out
    while etcd is silent, and are renewed when it answers. `was_silent`: it did not answer this command at once. If
    it did, and every source has a majority, nothing is waited for."""
    roster = opened.roster
    if roster.gone and (
        was_silent or not all(source_status(each, roster, {}, 1, WELL).has_majority for each in roster.records)
    ):
        progress(f"etcd has no lease of {', '.join(roster.gone)}: looking for {within_s:g} s whether they renew it")
        await opened.set_requests.look_again(within_s)


def progress(sentence: str) -> None:
    click.echo(escaped(sentence), err=True)


@contextmanager
def _sentences() -> Iterator[None]:
    """What goes wrong in the store, as the command line says it."""
    try:
        yield
    except (MetadataStoreError, MemberKept, MoveImpossible) as error:
        raise click.ClickException(str(error)) from error
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is not None:
            raise click.Abort from group
        raise


# Which sources


which_sources = together(
    click.option("--queue", metavar="NAME", help="The source of this queue: all queues of the source go with it."),
    click.option("--vhost", default="/", show_default=True, help="The queue's virtual host."),
    click.option("--source", type=click.IntRange(1), metavar="N", help="The source of this number."),
    click.option("--all", "everything", is_flag=True, help="All sources for which it makes sense."),
)
"""Options that name them."""


async def source_of(opened: OpenedClusterStore, vhost: str, queue: str) -> int:
    """The source that keeps a quorum queue of the cluster. Raises ClickException."""
    key = encode_key(("queue", vhost, queue))
    entry = await opened.store.get(key)
    record = decode_record(entry.key, entry.value) if entry is not None else None
    if not isinstance(record, QueueRecord):
        raise click.ClickException(f"there is no queue '{queue}' in virtual host '{vhost}'")
    if not record.source:
        raise click.ClickException(f"the queue '{queue}' is no quorum queue of the cluster: it has no copies")
    return record.source


async def sources_named(
    opened: OpenedClusterStore, vhost: str, queue: str | None, source: int | None, everything: bool
) -> list[int] | None:
    """None: all of them. Raises ClickException, UsageError."""
    if (queue is not None) + (source is not None) + everything != 1:
        raise click.UsageError("say which sources: one of --queue NAME, --source N, --all")
    if queue is not None:
        source = await source_of(opened, vhost, queue)
    if source is None:
        return None
    if source not in opened.roster.records:
        raise click.ClickException(f"there is no source {source}")
    return [source]


@dataclass
class Queues:
    """The numbers of queues that are declared in each source, and of classic queues at each node."""

    count: Counter[int]
    """how many queues each has"""
    copies: defaultdict[int, int]
    """how many copies each should have: as many as the queue of it that asks for most, or does not ask"""
    classic: Counter[str]
    """how many queues without a source each node leads; "": how many no node has claimed"""


async def queues_of(opened: OpenedClusterStore, copies: int) -> Queues:
    """`copies`: for queues that ask for no number. Raises MetadataStoreError."""
    found, asked, classic = Counter[int](), dict[int, int](), Counter[str]()
    # One that cannot be read asks for nothing.
    for record in RecordReader(strict=False).read_all((await opened.store.range(QUEUES)).entries):
        if isinstance(record, QueueRecord) and record.source:
            found[record.source] += 1
            each = wanted_of(record, {}).copies or copies
            asked[record.source] = max(each | 1, asked.get(record.source, 0))
        elif isinstance(record, QueueRecord) and not isinstance(record, UnreadableQueue):
            classic[record.node] += 1
    return Queues(found, defaultdict(lambda: copies, asked), classic)


async def unreadable_topology(opened: OpenedClusterStore) -> list[str]:
    """A sentence for each record of the topology that cannot be read. Raises MetadataStoreError."""
    reader = RecordReader(strict=False)
    for _ in reader.read_all(reader.in_order(await opened.store.range(PREFIX))):
        pass
    return reader.sentences()


def member_named(roster: Roster, name: str, *, lives: bool = True) -> str:
    """The whole name of a node of the cluster. Raises ClickException."""
    missing = f"{name} is no node of this cluster: `amqpd cluster status` says which there are"
    found = node_named(roster.known.keys() | roster.members.keys(), name, missing)
    if lives and found not in roster.members:
        raise click.ClickException(f"{found} does not live: `amqpd cluster status` says which nodes do")
    return found


def node_named(names: Collection[str], name: str, missing: str) -> str:
    """The whole name; what is before the @ is enough, if there is one such node. Raises ClickException, with
    `missing` if there is none."""
    found = [each for each in sorted(names) if name in (each, each.partition("@")[0])]
    if name in found:
        found = [name]
    if len(found) > 1:
        raise click.ClickException(f"{name} is one of {', '.join(found)}: write the whole name")
    if not found:
        raise click.ClickException(missing)
    return found[0]
