"""What has to be so of a cluster after faults, beside what clients saw: who was leader, and what is on the disks.

What comes in: brokers' logs; directories of brokers that run; members and sources as the store has them. What goes
out: violations; copies that are equal.
Rules: 1. For a source and an epoch at most one forwarder has begun to be the leader, and one process of it: nobody
else can have confirmed anything. 2. Copies are compared as a leader would read them: what of each queue is live, and
how often it came back. They are read from the disks themselves, of forwarders that go on. 3. That they become equal
is waited for: nobody tells of it.
Not here: what clients saw (`checker.py`).
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path

from amqpd.journal.errors import DiskFailure
from amqpd.journal.records import JournalDamaged, RecoveredQueue
from amqpd.journal.sqlite.replica_reading import ReplicaReader

from .cluster import Cluster

EQUAL_DEADLINE_S = 120.0
BETWEEN_LOOKS_S = 0.5
TAKEN_OVER = re.compile(r"source_taken_over.*")
FIELD = r'"?\b{}"?[=:]\s*(\d+)'

Live = dict[int, tuple[list[tuple[int, int]], dict[int, int]]]
"""queue id -> (first, last) of what is live, ascending and joined; counts of what came back"""


def leaders_of(logs: Mapping[str, str]) -> dict[tuple[int, int], list[str]]:
    """(source, epoch) -> who has begun to be its leader, once for each time."""
    found: dict[tuple[int, int], list[str]] = {}
    for name, log in logs.items():
        for line in TAKEN_OVER.findall(log):
            numbers = [re.search(FIELD.format(field), line) for field in ("source", "epoch")]
            assert all(numbers), line
            source, epoch = (int(number[1]) for number in numbers if number)
            found.setdefault((source, epoch), []).append(name)
    return found


def two_leaders(logs: Mapping[str, str]) -> list[str]:
    """A sentence for each epoch of a source that more than one had."""
    return [
        f"source {source} had {len(names)} leaders in epoch {epoch}: {names}"
        for (source, epoch), names in sorted(leaders_of(logs).items())
        if len(names) > 1
    ]


def wait_equal(cluster: Cluster) -> int:
    """Until all copies of each source are equal; how many sources. Nobody may publish or consume meanwhile. Raises
    AssertionError."""
    deadline_s = time.monotonic() + EQUAL_DEADLINE_S
    while True:
        members = {each["source"]: _names(each["members"]) for each in cluster.status()["sources"]}
        try:
            copies = {name: live_of(broker.data_dir, [*members]) for name, broker in cluster.brokers.items()}
            different = [said for source, names in members.items() if (said := _different(source, names, copies))]
        except (JournalDamaged, DiskFailure) as error:
            different = [f"not to be read: {error}"]  # it is written to
        if not different:
            return len(members)
        assert time.monotonic() < deadline_s, "copies are not equal:\n" + "\n".join(different)
        time.sleep(BETWEEN_LOOKS_S)


def _names(members: list[str]) -> list[str]:
    """As the harness calls them: a node adds its host."""
    return [member.partition("@")[0] for member in members]


def _different(source: int, members: list[str], copies: Mapping[str, Mapping[int, Live]]) -> str:
    """In which queues, and who has what; empty when they are equal."""
    of = {name: copies[name][source] for name in members}
    one = of[members[0]]
    said = [
        f"  queue {queue} at {name}: {copy.get(queue)}"
        for queue in sorted({queue for copy in of.values() for queue in copy})
        if any(copy.get(queue) != one.get(queue) for copy in of.values())
        for name, copy in of.items()
    ]
    return "\n".join([f"source {source}:", *said]) if said else ""


def live_of(directory: Path, sources: Collection[int]) -> dict[int, Live]:
    """What the disk has of each. Of a copy, as a process that runs keeps others out. Raises JournalDamaged or
    DiskFailure where the copy was made in the middle of something."""
    with tempfile.TemporaryDirectory(prefix="copy-") as copy:
        for name in ("journal.db", "journal.db-wal"):
            shutil.copy(directory / name, copy)
        with closing(ReplicaReader(Path(copy) / "journal.db")) as reader:
            return {
                source: {queue: live(found) for queue, found in reader.recovered_of([source]).queues.items()}
                for source in sources
            }


def live(found: RecoveredQueue) -> tuple[list[tuple[int, int]], dict[int, int]]:
    parts: list[tuple[int, int]] = []
    for row in found.rows:
        first = row.first_seq
        for low, high in [*row.settled, (row.last_seq + 1, row.last_seq)]:
            if first < low:
                if parts and parts[-1][1] + 1 == first:
                    parts[-1] = parts[-1][0], low - 1
                else:
                    parts.append((first, low - 1))
            first = max(first, high + 1)
    return parts, found.counts
