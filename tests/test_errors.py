"""Which of several failures the operator is told about."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import structlog.testing
import trio

from amqpd import broker
from amqpd.commands.serve import report
from amqpd.config import Settings
from amqpd.errors import (
    Failure,
    NodeFailure,
    SettingsError,
    StartupError,
    disk_failure,
    find_failure,
    first_reason,
    leaves,
    reasons,
)
from amqpd.journal.errors import DiskFailure
from amqpd.process.signals import Stop
from amqpd.topology.metadata.store import MetadataStoreError, StoreClosed, StoreFull


def _after(before: BaseException, later: BaseException) -> BaseException:
    later.__context__ = before
    return later


def test_a_failure_is_found_in_nested_groups() -> None:
    wanted = StartupError("port 5672 is taken")
    group = BaseExceptionGroup("a", [ValueError(), BaseExceptionGroup("b", [KeyError(), wanted])])
    assert find_failure(group) is wanted
    assert find_failure(wanted) is wanted


def test_the_failure_of_the_node_wins_over_its_consequences() -> None:
    wanted = NodeFailure("fsync failed")
    assert find_failure(ExceptionGroup("", [StartupError("x"), ExceptionGroup("", [wanted])])) is wanted


def test_a_failure_is_found_under_what_came_up_when_everything_was_closed() -> None:
    wanted = NodeFailure("fsync failed")
    error = _after(ExceptionGroup("", [wanted]), OSError("cannot be closed"))
    assert find_failure(error) is wanted
    assert list(reasons(error)) == [wanted, error]


def test_reasons_are_in_the_order_in_which_they_came_up() -> None:
    first, second, third = KeyError("1"), ValueError("2"), TypeError("3")
    second.__cause__ = first
    assert list(reasons(ExceptionGroup("", [ExceptionGroup("", [second]), third, second]))) == [first, second, third]


def test_the_first_reason_is_no_consequence() -> None:
    reason = ZeroDivisionError()
    group = BaseExceptionGroup(
        "", [trio.BrokenResourceError(), ExceptionGroup("", [trio.ClosedResourceError(), reason])]
    )
    assert first_reason(group) is reason


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(5, "Input/output error", "/data/x"), "the disk of /data/x failed: Input/output error"),
        (OSError(30, "Read-only file system"), "the disk failed: Read-only file system"),
        (FileNotFoundError(2, "No such file", "/x"), None),
        (ZeroDivisionError(), None),
    ],
)
def test_a_failing_disk_is_no_bug_wherever_it_is_met(error: Exception, sentence: str | None) -> None:
    told = disk_failure(ExceptionGroup("", [ExceptionGroup("", [trio.BrokenResourceError(), error])]))
    assert told == (sentence and f"{sentence}; see what the system's log says of it, then start again")


def test_sqlite_s_own_error_is_no_bug_either(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError) as caught:
        sqlite3.connect(tmp_path / "missing" / "x.db")
    told = disk_failure(caught.value)
    assert told
    assert told.startswith("the disk failed: unable to open database file (SQLITE_CANTOPEN)")


def test_a_bug_is_no_failure() -> None:
    assert find_failure(ExceptionGroup("", [ZeroDivisionError()])) is None


@pytest.mark.parametrize(("kind", "code"), [(StartupError, 1), (SettingsError, 2), (NodeFailure, 70)])
def test_exit_codes(kind: type[Failure], code: int) -> None:
    assert kind("s").exit_code == code
    assert str(kind("a sentence")) == "a sentence"


@pytest.mark.parametrize(
    "error",
    [
        ExceptionGroup("outer", [ExceptionGroup("inner", [DiskFailure("fsync: I/O error"), DiskFailure("later")])]),
        ExceptionGroup("", [trio.BrokenResourceError(), ExceptionGroup("", [DiskFailure("fsync: I/O error")])]),
        ExceptionGroup("", [StoreClosed("was closed"), DiskFailure("fsync: I/O error")]),
        _after(ExceptionGroup("", [DiskFailure("fsync: I/O error")]), OSError(5, "cannot be closed")),
        _after(ExceptionGroup("", [DiskFailure("fsync: I/O error")]), MetadataStoreError("cannot be closed")),
        _after(StoreFull("dealt with"), DiskFailure("fsync: I/O error")),
    ],
)
def test_a_failing_disk_is_named_however_deep_the_nurseries_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The log said "Exceptions from Trio nursery", or what came up last."""

    async def run(*_: object) -> None:
        raise error

    monkeypatch.setattr(broker.Broker, "run", run)
    settings = Settings(data_dir=tmp_path, bind=["127.0.0.1"], port=0)
    with pytest.raises(NodeFailure) as caught:
        trio.run(broker.serve, settings, Stop(1.0))
    assert caught.value.sentence == "fsync: I/O error"


@pytest.mark.parametrize("error", [_after(StoreFull("dealt with"), ZeroDivisionError("x")), KeyboardInterrupt()])
def test_a_bug_is_not_called_what_was_dealt_with_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    async def run(*_: object) -> None:
        raise error

    monkeypatch.setattr(broker.Broker, "run", run)
    settings = Settings(data_dir=tmp_path, bind=["127.0.0.1"], port=0)
    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(broker.serve, settings, Stop(1.0))
    assert list(leaves(caught.value)) == [error]


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (
            ExceptionGroup("", [trio.BrokenResourceError(), NodeFailure("fsync failed"), ValueError("else")]),
            70,
            ["failed beside it", "node stopped"],
        ),
        (ExceptionGroup("", [OSError(5, "Input/output error")]), 70, ["node stopped"]),
        (ExceptionGroup("", [NodeFailure("fsync failed"), DiskFailure("stopped before")]), 70, ["node stopped"]),
        (ExceptionGroup("", [trio.BrokenResourceError(), ZeroDivisionError("x")]), 70, ["stopped by a bug"]),
    ],
)
def test_what_the_operator_reads(error: Exception, code: int, lines: list[str]) -> None:
    with structlog.testing.capture_logs() as said:
        assert report(error) == code
    assert [line["event"] for line in said] == lines
    last = said[-1]
    assert "Trio nursery" not in last["reason"]
    assert "Broken" not in last["reason"]
    assert ("exc_info" in last) == (lines == ["stopped by a bug"])
