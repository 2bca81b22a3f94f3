"""The whole check of a data directory: metadata, journal, both as a pair, audit log.

What comes in: a data directory that no broker uses. What goes out: the report, and what journal and metadata say of
themselves.
Rules: 1. The metadata come first, because their names make the other findings readable. 2. What a newer amqpd wrote
is not looked at.
Not here: what is a damage of the databases (`journal.py`, `metadata.py`), what follows from it (`repair.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from amqpd.audit.files.damage import DAMAGED, SpoolDamaged
from amqpd.audit.files.edges import edges_damage
from amqpd.audit.files.incarnations import FILE, damage_of
from amqpd.backup.progress import Progress
from amqpd.checking.journal import ACCEPT, CheckedJournal, check_journal
from amqpd.checking.metadata import METADATA, CheckedMetadata, check_metadata
from amqpd.checking.report import RESTORE, Report
from amqpd.datadir.pairing import JournalFacts, MetadataFacts, misfits
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.node.orphans import REMEDY as ORPHANS_REMEDY
from amqpd.node.orphans import parted
from amqpd.storage.wal import why_less
from amqpd.topology.metadata.sqlite.glance import glance
from amqpd.vocabulary.journal_numbers import delayed_numbers, dropped_on


@dataclass
class Checked:
    """The results of the check of a data directory: the report, and the facts that were read on the way."""

    report: Report
    journal: CheckedJournal
    metadata: CheckedMetadata
    misfits: list[str]
    """between journal and metadata"""


def check(directory: Path, progress: Progress | None = None, *, quick: bool = False) -> Checked:
    """`quick`: bodies of messages are left out, and the pages they are on. The directory's lock must be held."""
    progress = progress or Progress()
    report = Report()
    progress.begin(f"checking {METADATA}")
    metadata = check_metadata(directory, report)
    journal = check_journal(directory, report, progress, quick=quick)
    _delayed(report, journal, metadata)
    newer = journal.newer or metadata.newer
    lost = [] if newer else _pair(directory, report, journal, metadata)
    _orphans(report, journal)
    check_audit(directory, report, progress, quick=quick)
    report.finish()
    return Checked(report, journal, metadata, lost)


def _delayed(report: Report, journal: CheckedJournal, metadata: CheckedMetadata) -> None:
    """Which numbers are delayed messages: a node's id is its journal's identity."""
    node_id = journal.names.get("identity", metadata.journal)
    names = report.names
    names.delayed = {number: vhost for vhost in names.vhosts for number in delayed_numbers(node_id, vhost)}
    numbers = [] if journal.recovered is None else journal.recovered.queues
    names.dropped = frozenset(dropped_on(node_id, names.dropped, numbers))


def _pair(directory: Path, report: Report, journal: CheckedJournal, metadata: CheckedMetadata) -> list[str]:
    path = directory / JOURNAL
    seen = glance(directory / METADATA)
    if seen is None or (path.exists() and "identity" not in journal.names):
        return []  # what is wrong is found already
    if path.exists() and journal.source is None and journal.rows.count:
        return []
    facts = JournalFacts(str(path), journal.names.get("identity", ""), journal.index, journal.names, why_less(path))
    lost = misfits(facts, MetadataFacts(str(directory / METADATA), *seen, why_less(directory / METADATA)))
    for sentence in lost:
        text = sentence.replace(f"{directory}/", "")
        report.damage(f"{JOURNAL}, {METADATA}", "pair", text, f"{RESTORE}, or {ACCEPT}")
    return lost


def _orphans(report: Report, journal: CheckedJournal) -> None:
    names = report.names
    if journal.recovered is None or not names.known:
        return
    queues = journal.recovered.queues
    unknown = [each for each in queues if not names.covers(each)]
    _, parked = parted(queues, unknown, names.dropped)
    for queue_id, found in parked.items():
        count = sum(row.last_seq - row.first_seq + 1 for row in found.rows)
        for row in found.rows:
            count -= sum(last - first + 1 for first, last in row.settled)
        if count:
            text = f"{count} messages of {{queue}}: the next start keeps them apart"
            report.note(JOURNAL, "orphan", text, ORPHANS_REMEDY, queue_id)


FOLDER = "audit"
_SPOOL = "the next start sets it aside, and says a gap in the audit log; messages are not touched"
_EDGES = "the next start sets it aside, and makes it again from the files; messages are not touched"
_EVENTS = "put a copy of the file back if there is one; messages are not touched"


def check_audit(directory: Path, report: Report, progress: Progress, *, quick: bool) -> None:
    folder = directory / FOLDER
    if not folder.exists():
        return
    progress.begin("checking the audit log")
    for place in (folder, folder / "spool", folder / "events"):
        if place.exists() and not place.is_dir():
            report.damage(_name(directory, place), "audit folder", "it is not a folder", _SPOOL)
            return
    if reason := damage_of(folder):
        text = f"the record of the broker's incarnations is not usable: {reason}"
        report.damage(f"{FOLDER}/{FILE}", "audit incarnations", text, _SPOOL)
    for path in sorted((folder / "spool").glob("*.spool")):
        if reason := _spool_damage(path):
            report.damage(_name(directory, path), "audit spool", f"it is damaged: {reason}", _SPOOL)
    for path in sorted((folder / "events").glob("_log-*.json")):
        if reason := edges_damage(path):
            report.damage(_name(directory, path), "audit edges", f"it is damaged: {reason}", _EDGES)
    events = sorted((folder / "events").glob("date=*/hour=*/*.parquet"))
    if events:
        _events(directory, events, report, progress, quick=quick)
    for path in sorted(folder.rglob(f"*{DAMAGED}")):
        report.note(_name(directory, path), "audit, set aside", "it was found damaged earlier, and set aside",
                    "nothing has to be done")  # fmt: skip


def _events(directory: Path, events: list[Path], report: Report, progress: Progress, *, quick: bool) -> None:
    # pyarrow takes a while to import.
    from amqpd.audit.files.parquet import damage_of_events

    progress.begin("checking the audit log", sum(_size(path) for path in events))
    for path in events:
        if reason := damage_of_events(path, whole=not quick):
            report.damage(_name(directory, path), "audit events", f"it is damaged: {reason}", _EVENTS)
        progress.add(_size(path))


def _spool_damage(path: Path) -> str:
    from amqpd.audit.files.parquet import check_spool

    try:
        check_spool(path)
    except (OSError, SpoolDamaged) as error:
        return str(error)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        return f"it holds something else than was written ({type(error).__name__})"
    return ""


def _name(directory: Path, path: Path) -> str:
    return path.relative_to(directory).as_posix()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
