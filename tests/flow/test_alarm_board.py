"""Which alarms are on, and because of whom."""

from __future__ import annotations

import pytest
from pamqp import commands, frame

from amqpd.flow.alarms import NAME_BYTES_MAX, OPERATOR_ALARMS_MAX, Alarms, RefusedAlarm


class Changes(list[tuple[str, bool]]):
    def __call__(self, kind: str, on: bool) -> None:
        self.append((kind, on))


def test_an_alarm_is_on_while_any_source_says_so() -> None:
    changes = Changes()
    alarms = Alarms(lambda: None, changes)
    alarms.put("disk", "watch", True, 1.0)
    alarms.put("disk", "journal", True, 2.0)
    alarms.put("disk", "watch", True, 3.0)
    assert [tuple(alarm) for alarm in alarms.by_source] == [("disk", "journal", 2.0), ("disk", "watch", 1.0)]
    alarms.put("disk", "watch", False, 4.0)
    assert changes == [("disk", True)]
    alarms.put("disk", "journal", False, 5.0)
    alarms.put("disk", "journal", False, 6.0)
    assert changes == [("disk", True), ("disk", False)]
    assert alarms.by_source == []


def test_an_operator_clears_only_what_an_operator_set() -> None:
    changes = Changes()
    alarms = Alarms(lambda: None, changes)
    alarms.put("memory", "watch", True, 1.0)
    assert not alarms.clear_by_operator("memory")
    assert alarms.set_by_operator("memory", 2.0)
    assert not alarms.set_by_operator("memory", 3.0)
    assert alarms.clear_by_operator("memory")
    assert changes == [("memory", True)]


def test_clearing_an_alarm_twice_is_no_error() -> None:
    changes = Changes()
    alarms = Alarms(lambda: None, changes)
    alarms.set_by_operator("mine", 1.0)
    assert [alarms.clear_by_operator("mine") for _ in range(2)] == [True, False]
    assert changes == [("mine", True), ("mine", False)]


@pytest.mark.parametrize("name", ["", "a b", "-a", "x" * (NAME_BYTES_MAX + 1), "a\nb", "ä"])
def test_a_name_that_could_not_be_told_is_refused(name: str) -> None:
    with pytest.raises(RefusedAlarm, match="an alarm's name is"):
        Alarms(lambda: None, Changes()).set_by_operator(name, 0)


def test_all_names_together_fit_the_reason_of_connection_blocked() -> None:
    changes = Changes()
    alarms = Alarms(lambda: None, changes)
    alarms.put("memory", "watch", True, 1.0)
    alarms.put("disk", "watch", True, 1.0)
    for letter in "abcdefghijklm"[:OPERATOR_ALARMS_MAX]:
        alarms.set_by_operator(letter * NAME_BYTES_MAX, 1.0)
    with pytest.raises(RefusedAlarm, match="clear one"):
        alarms.set_by_operator("one-more", 1.0)
    reason = "low on " + " & ".join(kind for kind, _ in changes)
    assert frame.marshal(commands.Connection.Blocked(reason=reason), 0)
