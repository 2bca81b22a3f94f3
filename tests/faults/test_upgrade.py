"""What another version wrote is opened: `upgrade/` with few messages. Two million: `make upgrade BEFORE=...`.

The directories in `upgrade/767bb6c.tar.xz` are of that commit, the last one before format 0004 of the journal; all
their expirations and delays are over.
"""

from __future__ import annotations

import copy
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.slow import slow_but

from ..clients.broker_process import REPOSITORY
from .upgrade.__main__ import ENDS, opened
from .upgrade.judge import judge
from .upgrade.loads import HELD, LOADS, Book, read_book
from .upgrade.reading import Came, Seen
from .upgrade.writing import write

BEFORE = Path(__file__).parent / "upgrade" / "767bb6c.tar.xz"
Looked = tuple[Book, Seen]

pytestmark = pytest.mark.usefixtures("only_amqpd")


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Looked:
    """This version reads what it wrote, and was killed meanwhile."""
    folder = tmp_path_factory.mktemp("upgrade")
    book = write(REPOSITORY, folder / "written", 10_000, 4_000, killed=True)
    return book, opened(REPOSITORY, "", folder / "written", folder / "read", book)


@pytest.mark.parametrize("end", slow_but(["killed"], ENDS))
def test_what_the_version_before_wrote_is_all_there(tmp_path: Path, end: str) -> None:
    with tarfile.open(BEFORE) as archive:
        archive.extractall(tmp_path, filter="data")
    book = read_book(tmp_path / end / "book.json")
    seen = opened(REPOSITORY, "", tmp_path / end, tmp_path / "read", book)
    assert judge(book, seen) == []


@pytest.mark.slow
def test_what_this_version_wrote_is_all_there(looked: Looked) -> None:
    book, seen = looked
    assert judge(book, seen) == []
    assert all(seen.queues[load.queue] for load in LOADS if load.consumed), "there was something to judge"


def _lose(seen: Seen) -> None:
    del seen.queues["plain"][7]


def _again(seen: Seen) -> None:
    came = seen.queues["held"]
    came.append(came[-1])


def _swap(seen: Seen) -> None:
    came = seen.queues["plain"]
    came[3], came[4] = came[4], came[3]


def _level(seen: Seen) -> None:
    came = seen.queues["ranked"]
    came.insert(0, came.pop())


def _unflag(seen: Seen) -> None:
    seen.queues["held"][0].redelivered = False


def _flag(seen: Seen) -> None:
    seen.queues["plain"][-1].redelivered = True


def _settled(seen: Seen) -> None:
    seen.queues["plain"].insert(0, Came(1, "plain", True, 0))


def _transient(seen: Seen) -> None:
    seen.queues["beside"].insert(1, Came(1, "beside", False, 0))


def _count(seen: Seen) -> None:
    seen.queues["counted"][0].returns = 1


def _dead_letter(seen: Seen) -> None:
    seen.queues["judged"].insert(0, seen.queues["judged.dead"].pop(0))


def _death(seen: Seen) -> None:
    seen.queues["waiting.dead"][0].deaths = None


def _early(seen: Seen) -> None:
    seen.queues["delayed"][-1].at_ms = seen.began_ms - 3_600_000


def _late(seen: Seen) -> None:
    next(each for each in seen.queues["expiring"] if each.number % 4).at_ms += 24 * 3_600_000


def _soon(seen: Seen) -> None:
    seen.queues["waiting.dead"][0].at_ms = seen.began_ms - 3_600_000


def _delayed(seen: Seen) -> None:
    seen.delayed -= 1


def _policy(seen: Seen) -> None:
    del seen.definitions["policies"][0]


def _limit(seen: Seen) -> None:
    seen.limited += 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_lose, "plain: 1 lost"),
        (_again, "held: 1 twice"),
        (_swap, "plain: out of order"),
        (_level, "ranked: out of order"),
        (_unflag, "held: 1 with a wrong redelivered"),
        (_flag, "plain: 1 with a wrong redelivered"),
        (_settled, "plain: 1 in the wrong place"),
        (_transient, "beside: 1 in the wrong place"),
        (_count, "counted: 1 with a wrong count"),
        (_dead_letter, "judged: 1 in the wrong place"),
        (_death, "waiting: 1 with a wrong x-death"),
        (_early, "delayed: 1 before its time"),
        (_late, "expiring: 1 long after it expired"),
        (_soon, "waiting: 1 before its time"),
        (_delayed, "messages are delayed"),
        (_policy, "policies:"),
        (_limit, "the policy lets"),
    ],
)
def test_the_judge_says_what_is_wrong(looked: Looked, change: Callable[[Seen], None], said: str) -> None:
    book, seen = copy.deepcopy(looked)
    change(seen)
    assert any(said in sentence for sentence in judge(book, seen)), judge(book, seen)


def test_what_is_delayed_for_long_is_due_after_it() -> None:
    delayed = next(load for load in LOADS if load.queue == "delayed")
    book = Book(1000, 1000, killed=False, sent={"delayed": [(0, 0, 1)]})
    assert book.kind(delayed, 2, 5_000) == HELD
    assert book.kind(delayed, 2, 24 * 3_600_000) == "here"
