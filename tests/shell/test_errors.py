"""Which of several failures the operator is told about."""

from __future__ import annotations

import pytest

from amqpd.errors import Failure, NodeFailure, SettingsError, StartupError, find_failure


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
