"""A journal and a metadata store that do not belong together: said, with nothing written, and accepted when asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import structlog
import trio

from amqpd.checking.check import check
from amqpd.datadir.opening import Pair, open_pair
from amqpd.datadir.pairing import JournalFacts, MetadataFacts, misfits
from amqpd.errors import StartupError
from amqpd.journal.records import Row
from amqpd.journal.transaction import JournalTransaction
from amqpd.topology.metadata.bootstrap import bootstrap
from amqpd.topology.metadata.store import StoreBusy, StoreFull
from amqpd.topology.metadata.sync import transaction_of
from amqpd.vocabulary.records import Delete, Put, QueueRecord

JOURNAL = JournalFacts("j", "aa", 7, {"metadata": "bb", "metadata_revision": "3"})
METADATA = MetadataFacts("m", "bb", 4, ("aa", 6), True)


@pytest.mark.parametrize(
    ("journal", "metadata", "sentence"),
    [
        (JOURNAL, METADATA, None),
        (JOURNAL._replace(names={}), METADATA._replace(journal=None), None),  # never paired
        (JOURNAL._replace(last=0, names={}), METADATA, "j is missing or new, and m has queues"),
        (JOURNAL._replace(identity="cc", last=0, names={}), METADATA._replace(queues=False), None),
        (JOURNAL._replace(identity="cc"), METADATA, "m belongs to another journal than j"),
        (
            JOURNAL._replace(last=5),
            METADATA,
            "j ends at transaction 5, and m knows that it had 6",
        ),
        (
            JOURNAL,
            METADATA._replace(identity="", journal=None),
            "m is missing, and j beside it",
        ),
        (JOURNAL, METADATA._replace(identity="dd", journal=None), "j belongs to another metadata store than m"),
        (JOURNAL, METADATA._replace(identity="bb-2-x", journal=None), "m was put back to an older copy, and j may"),
        (
            JOURNAL,
            METADATA._replace(revision=2),
            "m is of revision 2, and j knows that it had 3",
        ),
    ],
)
def test_what_does_not_fit_is_a_sentence(journal, metadata, sentence):
    if journal.last == 0:
        journal = journal._replace(identity="cc")
    found = misfits(journal, metadata)
    assert [each.startswith(sentence) for each in found] == [True] if sentence else found == []


async def run(directory: Path, *, messages: int = 0, queues: tuple[str, ...] = (), accept_loss: bool = False) -> Pair:
    """One incarnation of a broker's files."""
    pair = await open_pair(directory, accept_loss=accept_loss)
    await bootstrap(pair.store)
    pair.disk.recover()
    last = await pair.begin()
    for index in range(last + 1, last + 1 + messages):
        pair.disk.commit(JournalTransaction(index, rows=[Row(1, index, index, b"frames")]))
    for name in queues:
        await pair.store.transact((), transaction_of([Put(QueueRecord("/", name, 1))]).operations)
    await pair.note()
    await pair.store.keep_copies()
    await pair.store.aclose()
    pair.disk.close()
    return pair


@pytest.fixture
def incarnations(tmp_path):
    """`data` has had three; `older` is what it was after the first, `other` is another broker's."""

    async def all_incarnations():
        await run(tmp_path / "data", messages=3, queues=("q",))
        shutil.copytree(tmp_path / "data", tmp_path / "older")
        await run(tmp_path / "data", messages=3, queues=("r", "s"))
        await run(tmp_path / "data")
        await run(tmp_path / "other", messages=2, queues=("x", "y", "z"))

    trio.run(all_incarnations)
    return tmp_path


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.endswith("-shm")}


JOURNALS, STORES = ("journal.db", "journal.mark"), ("metadata.db", "metadata.mark", "metadata.db.1", "metadata.db.2")


@pytest.mark.parametrize(
    ("files", "source", "sentence"),
    [
        (JOURNALS, "older", "it is an older copy"),
        (STORES, "older", "it is an older copy"),
        (JOURNALS, "other", "belongs to another journal"),
        (STORES, "other", "belongs to another journal"),
        (JOURNALS, None, "is missing or new, and"),
        (STORES, None, "is missing, and"),
        (("journal.db",), "older", "was confirmed: it is an older copy"),
        (("journal.db",), "other", "one was replaced"),
        (("journal.db",), None, "is missing"),
        (("metadata.db",), "older", "older|revision"),
        (("metadata.db",), None, "missing"),
    ],
)
@pytest.mark.trio
async def test_a_file_that_is_older_missing_or_anothers_is_refused_as_it_was(incarnations, files, source, sentence):
    data = incarnations / "data"
    for name in files:
        (data / name).unlink(missing_ok=True)
        if source is not None and (incarnations / source / name).exists():
            shutil.copy(incarnations / source / name, data)
    before = contents(data)
    for _ in range(2):
        with pytest.raises(StartupError, match=sentence) as refused:
            await open_pair(data, accept_loss=False)
        assert refused.value.sentence.count("--accept-loss") == 1
        after = contents(data)
        assert {name for name in after if after[name] != before.get(name)} <= {"reserve", "metadata.reserve"}
        assert before.keys() <= after.keys()
    pair = await run(data, accept_loss=True)
    assert pair.suspect or files[0] == "journal.db"
    # Accepted once: now that is the pair.
    await run(data, messages=1)


@pytest.mark.trio
async def test_a_pair_fits_itself_again_and_again(incarnations):
    for messages in (0, 1, 0):
        pair = await run(incarnations / "data", messages=messages)
        assert not pair.suspect


@pytest.mark.trio
async def test_a_copy_from_before_the_last_start_is_older_though_nothing_was_noted_since(tmp_path):
    await run(tmp_path / "data", messages=3, queues=("q",))
    shutil.copytree(tmp_path / "data", tmp_path / "older")
    pair = await open_pair(tmp_path / "data", accept_loss=False)
    pair.disk.recover()
    last = await pair.begin()
    await pair.note()  # as a start does, and then it is killed
    pair.disk.commit(JournalTransaction(last + 1, rows=[Row(1, 10, 10, b"frames")]))
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    await pair.store.aclose()
    pair.disk.close()
    for name in (*JOURNALS, "journal.db-wal"):
        (tmp_path / "killed" / name).unlink(missing_ok=True)
        if (tmp_path / "older" / name).exists():
            shutil.copy(tmp_path / "older" / name, tmp_path / "killed")
    with pytest.raises(StartupError, match="it is an older copy"):
        await open_pair(tmp_path / "killed", accept_loss=False)


@pytest.mark.trio
async def test_an_older_copy_is_told_when_the_journal_went_on_behind_the_change(tmp_path):
    """A queue is deleted, and the node is killed before anything was noted but in the deletion's own transaction."""
    pair = await open_pair(tmp_path / "data", accept_loss=False)
    await bootstrap(pair.store)
    pair.disk.recover()
    last = await pair.begin()
    await pair.store.transact((), transaction_of([Put(QueueRecord("/", "q", 1))]).operations)
    pair.disk.commit(JournalTransaction(last + 1, rows=[Row(1, 0, 0, b"frames")]))
    await pair.note()
    shutil.copytree(tmp_path / "data", tmp_path / "older")
    await pair.store.transact((), transaction_of([Delete(("queue", "/", "q"))]).operations)
    pair.applied(await pair.store.refresh())
    pair.disk.commit(JournalTransaction(last + 2, dropped=[1]))
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    await pair.store.aclose()
    pair.disk.close()
    for path in (tmp_path / "killed").glob("metadata*"):
        path.unlink()
    for path in (tmp_path / "older").glob("metadata*"):
        shutil.copy(path, tmp_path / "killed")
    with pytest.raises(StartupError, match=r"metadata.db is of revision .* it is an older copy"):
        await open_pair(tmp_path / "killed", accept_loss=False)


@pytest.mark.trio
@pytest.mark.parametrize("error", [StoreBusy("held"), StoreFull("full")])
async def test_a_note_that_cannot_be_written_waits_and_is_said_once(tmp_path, monkeypatch, error):
    pair = await open_pair(tmp_path, accept_loss=False)
    await bootstrap(pair.store)
    pair.disk.recover()
    refuse = True
    refresh = pair.store.refresh

    async def refreshed():
        if refuse:
            raise error
        return await refresh()

    monkeypatch.setattr(pair.store, "refresh", refreshed)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            await pair.note()
    assert [each["reason"] for each in logs] == [str(error)]
    assert "metadata" not in pair.disk.names
    refuse = False
    await pair.note()
    assert pair.disk.names["metadata"] == await pair.store.identity()
    await pair.store.aclose()
    pair.disk.close()


@pytest.mark.trio
@pytest.mark.parametrize("name", ["journal.db-wal", "metadata.db-wal"])
async def test_another_brokers_log_is_refused(tmp_path, name):
    """SQLite would lay its pages over the database, whosever they are."""
    for directory, messages in (("mine", 3), ("other", 30)):
        await run(tmp_path / directory, messages=1, queues=("q",))
        pair = await open_pair(tmp_path / directory, accept_loss=False)
        pair.disk.recover()
        for index in range(pair.disk.index + 1, pair.disk.index + 1 + messages):
            pair.disk.commit(JournalTransaction(index, rows=[Row(1, index, index, b"frames")]))
        for at in range(messages):
            await pair.store.transact((), transaction_of([Put(QueueRecord("/", f"r{at}", at + 2))]).operations)
        shutil.copytree(tmp_path / directory, tmp_path / f"{directory} killed")
        await pair.store.aclose()
        pair.disk.close()
    data = tmp_path / "mine killed"
    for here in (data, tmp_path / "other killed"):
        assert (here / name).stat().st_size > 4096
        (here / "metadata.db-shm").unlink(missing_ok=True)
    shutil.copy(tmp_path / "other killed" / name, data)
    before = contents(data)
    with pytest.raises(StartupError, match=r"damaged|replaced|another"):
        await open_pair(data, accept_loss=False)
    assert contents(data) == before


@pytest.mark.trio
@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(("database", "frames"), [("metadata", 3), ("metadata", 1), ("journal", 1)])
async def test_a_log_that_is_damaged_is_no_older_copy(
    tmp_path: Path, database: str, frames: int, marked: bool
) -> None:
    """A byte of its last transaction, or of one before. The copies of the metadata are a way out of it."""
    pair = await open_pair(tmp_path / "data", accept_loss=False)
    await bootstrap(pair.store)
    await pair.store.keep_copies()
    pair.disk.recover()
    last = await pair.begin()
    await pair.store.transact((), transaction_of([Put(QueueRecord("/", "q", 1))]).operations)
    await pair.store.transact((), transaction_of([Put(QueueRecord("/", "r", 2))]).operations)
    pair.applied(await pair.store.refresh())
    pair.disk.commit(JournalTransaction(last + 1, rows=[Row(1, 0, 0, b"frames")]))
    if database == "journal":
        await pair.store.set_journal(pair.disk.names["identity"], pair.disk.stored_index)
    else:
        await pair.note(both=False)
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    await pair.store.aclose()
    pair.disk.close()
    if not marked:
        (tmp_path / "killed" / f"{database}.mark").unlink()
    log = tmp_path / "killed" / f"{database}.db-wal"
    content = bytearray(log.read_bytes())
    page_bytes = int.from_bytes(content[8:12], "big")
    content[-frames * (24 + page_bytes) + 100] ^= 1
    log.write_bytes(content)
    with pytest.raises(StartupError, match=rf"{database}\.db-wal is damaged") as refused:
        await open_pair(tmp_path / "killed", accept_loss=False)
    assert "older copy" not in refused.value.sentence
    assert ("restore-copy" in refused.value.sentence) == (marked and database == "metadata")
    found = [each.line for each in check(tmp_path / "killed").report.findings]
    assert not [line for line in found if "older copy" in line], found
