"""Which of several failures the operator is told about."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from amqpd import broker
from amqpd.config import Settings
from amqpd.errors import Failure, NodeFailure, SettingsError, StartupError, find_failure
from amqpd.journal.errors import DiskFailure


def test_a_failure_is_found_in_nested_groups() -> None:
    wanted = StartupError("port 5672 is taken")
    group = BaseExceptionGroup("a", [ValueError(), BaseExceptionGroup("b", [KeyError(), wanted])])
    assert find_failure(group) is wanted
    assert find_failure(wanted) is wanted


def test_the_failure_of_the_node_wins_over_its_consequences() -> None:
    wanted = NodeFailure("fsync failed")
    assert find_failure(ExceptionGroup("", [StartupError("x"), ExceptionGroup("", [wanted])])) is wanted


def test_a_bug_is_no_failure() -> None:
    assert find_failure(ExceptionGroup("", [ZeroDivisionError()])) is None


@pytest.mark.parametrize(("kind", "code"), [(StartupError, 1), (SettingsError, 2), (NodeFailure, 70)])
def test_exit_codes(kind: type[Failure], code: int) -> None:
    assert kind("s").exit_code == code
    assert str(kind("a sentence")) == "a sentence"


def test_a_failing_disk_is_named_however_deep_the_nurseries_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks saw the disk fail, in a nursery of a nursery: the log said "Exceptions from Trio nursery"."""

    async def run(*_: object) -> None:
        raise ExceptionGroup(
            "outer", [ExceptionGroup("inner", [DiskFailure("fsync: I/O error"), DiskFailure("later")])]
        )

    monkeypatch.setattr(broker.Broker, "run", run)
    settings = Settings(data_dir=tmp_path, bind=["127.0.0.1"], port=0)
    with pytest.raises(NodeFailure) as caught:
        trio.run(broker.serve, settings, trio.Event())
    assert caught.value.sentence == "fsync: I/O error"
