"""Free memory goes back to the system after work, once, and not during it."""

from __future__ import annotations

from amqpd.process.memory import LOOK_S, QUIET_SHARE, WORK_S_MIN, FreeMemory

QUIET_S = LOOK_S * QUIET_SHARE / 2
BUSY_S = LOOK_S * QUIET_SHARE * 2


class Watched:
    def __init__(self) -> None:
        self.now_s, self.used_s = 100.0, 0.0
        self.free = FreeMemory(self.now_s, self.used_s)

    def look(self, used_s: float) -> bool:
        self.now_s += LOOK_S
        self.used_s += used_s
        return self.free.due(self.now_s, self.used_s)


def test_once_after_each_stretch_of_work() -> None:
    watched = Watched()
    assert [watched.look(LOOK_S), watched.look(BUSY_S)] == [False, False]
    assert watched.look(QUIET_S)
    assert [watched.look(QUIET_S), watched.look(0)] == [False, False]
    assert not watched.look(LOOK_S)
    assert watched.look(0)


def test_little_work_gathers() -> None:
    watched = Watched()
    looks = [watched.look(QUIET_S) for _ in range(round(WORK_S_MIN / QUIET_S) + 1)]
    assert looks.count(True) == 1
    assert not any(looks[:3])


def test_what_the_start_used_is_work() -> None:
    free = FreeMemory(0.0, 3.0)
    assert free.due(LOOK_S, 3.0)
