"""Which source the quorum queues of a definitions file get, when they go into a cluster.

What comes in: a data directory, whose settings say where the cluster meets. What goes out: a source for each queue.
Rules: 1. They spread over the nodes that live and are the home of a source with enough copies, by bounded-load hash
of their names. 2. Where there is none for a queue the import is refused: a quorum queue that is copied nowhere is not
what the file says. 3. Nodes that share their metadata and keep no copies for each other are no such cluster.
Not here: how one is chosen (`cluster/choosing.py`), what is imported (`definitions.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from amqpd.cluster.choosing import Heard, choose
from amqpd.cluster.records import MemberRecord
from amqpd.commands.cluster_store import Opened, in_store, queues_of
from amqpd.commands.metadata import cluster_settings
from amqpd.declarations.locating import wanted_of
from amqpd.definitions.difference import local_source
from amqpd.management.errors import Unavailable
from amqpd.queues.settings import QUORUM, type_of
from amqpd.vocabulary.records import Key, QueueRecord


def sources_for(data_dir: Path) -> Callable[[QueueRecord], int]:
    """What is returned raises Unavailable. Raises ClickException, StartupError."""
    settings = cluster_settings(data_dir)
    if settings is None:
        return local_source
    copies = settings.cluster_copies

    async def read(opened: Opened) -> tuple[Heard, Counter[int]]:
        roster = opened.roster
        heard = Heard("", roster.members, roster.known, roster.records)
        return heard, (await queues_of(opened, copies)).count

    heard, queues = in_store(settings, read)
    return _Chooser(heard, queues, copies).source_of if heard.living else local_source


class _Chooser:
    """Remembers what it has said: a file is compared several times."""

    def __init__(self, heard: Heard, queues: Counter[int], copies: int) -> None:
        self._heard = heard
        self._queues = queues
        self._copies = copies
        self._said: dict[Key, int] = {}
        self._able: dict[int, dict[str, MemberRecord]] = {}
        """by the number of copies that is asked for: nodes that are the home of such a source"""

    def source_of(self, record: QueueRecord) -> int:
        if type_of(record.arguments) != QUORUM:
            return local_source(record)
        source = self._said.get(record.key)
        if source is None:
            source = self._said[record.key] = self._choose(record)
            self._queues[source] += 1
        return source

    def _choose(self, record: QueueRecord) -> int:
        heard, wanted = self._heard, wanted_of(record, {})._replace(balanced=f"{record.vhost}/{record.name}")
        able = self._able.get(wanted.copies)
        if able is None:
            able = self._able[wanted.copies] = {
                name: member
                for name, member in heard.living.items()
                if choose(wanted, replace(heard, living={name: member}), {}, (), self._copies)[0]
            }
        if not able:
            raise Unavailable(
                f"'{record.name}' in '{record.vhost}' is a quorum queue, and no node serves a source for it yet: "
                "declare a quorum queue like it on each node first"
            )
        return choose(wanted, replace(heard, living=able), self._queues, (), self._copies)[0]
