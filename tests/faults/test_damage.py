"""A few rounds of `python -m tests.faults.damage` (docs/testing.md), which draws hundreds: each damage has one end.

The images are made once for the file. What is damaged is chosen by name, so that a round is the same whatever offsets
things have. The judge is tried too: an image that lost a message must not pass.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pika
import pytest

from tests.harness.slow import slow, slow_but

from .conftest import opened
from .damage.books import Book
from .damage.damages import Damage, make, make_set
from .damage.forked import ForkedBroker
from .damage.images import make_images
from .damage.judge import FENCED, NOT_ALLOWED, PARKED, RECOVERED, REFUSED, UNHARMED, judge
from .damage.pages import anatomy
from .damage.rounds import look, play

IMAGES = ("stopped", "killed")
SEED = 15
FIELDS = (
    *("batch.queue_id", "batch.first_seq", "batch.last_seq", "batch.nbytes", "batch.body_bytes", "batch.idx"),
    *("batch.published_ms", "batch.crc", "batch.data", "batch_index.queue_id", "batch_index.nbytes"),
    *("settled.queue_id", "settled.first_seq", "settled.last_seq", "settled.idx"),
    *("queue.delivered", "queue.next_seq", "source.idx", "settled.crc", "queue.crc", "source.crc"),
)

pytestmark = pytest.mark.usefixtures("only_amqpd")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    make_images(folder, IMAGES)
    return folder


@pytest.mark.parametrize("image", slow_but(["killed"], IMAGES))
def test_what_is_not_damaged_is_recovered(images: Path, tmp_path: Path, image: str) -> None:
    unharmed = Damage(image, "nothing", "none", "nothing", lambda folder: None)
    ruling = judge(*play(images, unharmed, tmp_path / "round", again=True), UNHARMED)
    assert ruling == (RECOVERED, [])


@pytest.mark.parametrize(
    ("image", "file", "kind", "field", "outcome"),
    [
        ("stopped", "journal.db", "bit", "batch.data", FENCED),
        slow("stopped", "journal.db", "byte", "database header.magic", REFUSED),
        slow("killed", "journal.db-wal", "byte", "commit frame.checksum", REFUSED),
        ("killed", "journal.db-wal", "removed", "", REFUSED),
        ("killed", "journal.db-wal", "grown", "", RECOVERED),
        slow("killed", "metadata.db-wal", "zero 512", "", REFUSED),
        slow("stopped", "audit/incarnations.json", "zero 512", "", RECOVERED),
    ],
)
def test_a_damage(images: Path, tmp_path: Path, image: str, file: str, kind: str, field: str, outcome: str) -> None:
    damage = make(random.Random(SEED), images, image, file, kind, field)
    book, seen = play(images, damage, tmp_path / "round")
    ruling = judge(book, seen, damage.file)
    assert ruling == (outcome, []), f"{damage.text}\n" + "\n".join(seen.log[-20:])


@pytest.mark.slow
def test_messages_without_their_metadata_are_parked_and_given_back(images: Path, tmp_path: Path) -> None:
    damage = make_set(images, "stopped", "metadata (all)", "removed", "")
    book, seen = play(images, damage, tmp_path / "round")
    assert judge(book, seen, damage.file) == (REFUSED, []), "\n".join(seen.log[-20:])
    seen = look(book, tmp_path / "round" / "data", arguments=["--accept-loss"])
    assert judge(book, seen, damage.file) == (PARKED, []), "\n".join(seen.log[-20:])
    assert sum(map(len, seen.adopted.values())) == sum(map(len, book.due.values()))


@pytest.mark.slow
def test_a_message_that_is_missing_is_found(images: Path, tmp_path: Path) -> None:
    """The loss is made by means that the broker cannot notice: the message was taken by somebody of whom the book
    does not know."""
    data = tmp_path / "data"
    shutil.copytree(images / "stopped" / "data", data)
    book = Book.load(images / "stopped" / "book.json")
    thief = ForkedBroker(data, book.environment)
    try:
        thief.start()
        with opened(thief) as channel:
            taken = channel.basic_get("fan2", auto_ack=True)
            channel.queue_declare("deleted", durable=True)
            back = pika.BasicProperties(message_id="plain:0", delivery_mode=2, headers={"number": 0})
            channel.basic_publish("", "plain", b"another body", back)
        assert thief.terminate() == 0
    finally:
        thief.close()
    assert taken[1].message_id == "spread:0"
    ruling = judge(book, look(book, data))
    assert ruling.outcome == NOT_ALLOWED
    for reason in (
        "lost from fan2: 1 (spread 0)",
        "settled messages back in plain: 1 (plain 0)",
        "wrong: the body of plain:0 in plain: b'another body'",
        "deleted queue is back: deleted",
    ):
        assert reason in ruling.reasons


def test_every_field_of_every_record_has_a_place(images: Path) -> None:
    """Or damages of a new column would never be drawn."""
    found = anatomy(images / "stopped" / "data" / "journal.db").database
    logged = anatomy(images / "killed" / "data" / "journal.db").wal
    for name in FIELDS:
        assert found[name], name
        assert name in logged or logged[f"{name} (type)"], name  # small numbers are in their types
    data = (images / "stopped" / "data" / "journal.db").read_bytes()
    # What is said to be a body holds bodies, and what is said to be a type is one of a page.
    assert b"plain:" in b"".join(data[place.offset : place.offset + place.length] for place in found["batch.data"])
    assert {data[place.offset] for place in found["page.type"]} <= {2, 5, 10, 13}
    assert {"wal header.salt1", "commit frame.checksum", "last commit frame.commit size", "frame.page number"} <= set(
        logged
    )
