"""Calls on one disk that may never come back: who calls waits for a bound only.

What comes in: calls that block. What goes out: what they return or raise; or `Unanswered`, and the call goes on in
its thread.
Rules: 1. One call at a time, in the order in which they were made, in one thread: a disk that hangs holds that one,
which nothing can end, and no other. 2. A call that its caller gives up, and that has not begun, never begins. 3. The
thread is a daemon: the process can end while it hangs.
Not here: what follows from it (`datadir/disks/`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

# A disk that has not answered in this time is not waited for, where there is another one: drives that are one of
# several give up a sector after some seven seconds, and a controller that is reset takes as long.
HANG_S = 10.0
# How often somebody who waits looks whether it is still worth it.
LOOK_S = 0.1

T = TypeVar("T")


class Unanswered(Exception):
    """A call on a disk did not end in time, or was not begun; the text is one sentence."""


class BoundedCall(Generic[T]):
    """One call on a disk that may not come back. `ended` is read with the condition of its `BoundedCalls` held."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.ended = False
        self.answer: T
        self.error: BaseException | None = None

    def result(self) -> T:
        """Of one that has ended. Raises what the call raised."""
        if self.error is not None:
            raise self.error
        return self.answer


class BoundedCalls:
    """Calls on one disk, made one after the other in a thread, each waited for up to a bound."""

    def __init__(self, name: str, changed: threading.Condition | None = None) -> None:
        """`name`: for sentences and of the thread. `changed`: notified when a call has ended."""
        self._name = name
        self.changed = changed or threading.Condition()
        self._waiting: deque[BoundedCall[Any]] = deque()
        self._began_s: float | None = None
        self.under_way: BoundedCall[Any] | None = None
        self._thread: threading.Thread | None = None
        self._last: Callable[[], object] | None = None
        """what is done before the thread ends; set: no call is taken any more"""

    def put(self, work: Callable[[], T]) -> BoundedCall[T]:
        """The call is made when those before it have ended. Raises Unanswered when none is taken any more."""
        call = BoundedCall(work)
        with self.changed:
            if self._last is not None:
                raise Unanswered(f"{self._name} is not open any more")
            self._waiting.append(call)
            if self._thread is None:
                self._begin()
            self.changed.notify_all()
        return call

    def wait(self, call: BoundedCall[T], gives_up: Callable[[float], bool]) -> T:
        """`gives_up` is asked again and again, with how long this has waited. Raises Unanswered after it said so, and
        what the call raises."""
        began_s = time.monotonic()
        while True:
            with self.changed:
                if not call.ended:
                    self.changed.wait(LOOK_S)
                if call.ended:
                    return call.result()
            waited_s = time.monotonic() - began_s
            if gives_up(waited_s):
                self.drop(call)
                raise Unanswered(f"{self._name} did not answer for {waited_s:.0f} s")

    def call(self, work: Callable[[], T], bound_s: float | None = None) -> T:
        """The same as `put` and `wait`, up to a bound, which is `HANG_S` if none is given. In its own thread it is
        made at once."""
        if self.mine:
            return work()
        bound_s = HANG_S if bound_s is None else bound_s
        return self.wait(self.put(work), lambda waited_s: waited_s >= bound_s)

    def drop(self, call: BoundedCall[Any]) -> None:
        """Nobody waits for it any more: if it has not begun, it never does."""
        with self.changed:
            if call in self._waiting:
                self._waiting.remove(call)

    @property
    def mine(self) -> bool:
        """This is its thread."""
        return threading.current_thread() is self._thread

    def busy_s(self) -> float:
        """For how long the call that is under way has been; 0: none is."""
        began_s = self._began_s
        return 0.0 if began_s is None else time.monotonic() - began_s

    def close(self, last: Callable[[], object] = lambda: None) -> None:
        """No call is taken any more. When the one under way has ended, `last` is called, which must not raise, and
        the thread ends. A second time it does nothing."""
        with self.changed:
            if self._last is not None:
                return
            self._last = last
            while self._waiting:
                dropped = self._waiting.popleft()
                dropped.error, dropped.ended = Unanswered(f"{self._name} is not open any more"), True
            if self._thread is None:
                self._begin()
            self.changed.notify_all()

    def ended(self, timeout_s: float | None) -> bool:
        """After `close`: the thread has ended, or has by then. None: without a bound."""
        assert self._thread is not None
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            try:
                call.answer = call.work()
            except BaseException as error:  # noqa: BLE001 - the caller's, who gets it
                call.error = error
            with self.changed:
                self._began_s = self.under_way = None
                call.ended = True
                self.changed.notify_all()
            del call  # what it returned may be large
        assert self._last is not None
        self._last()

    def _next(self) -> BoundedCall[Any] | None:
        """None: there is none, and none comes any more."""
        with self.changed:
            while not self._waiting:
                if self._last is not None:
                    return None
                self.changed.wait()
            # At once: it does not wait any more, and it is seen that the thread is busy.
            self._began_s, self.under_way = time.monotonic(), self._waiting.popleft()
            return self.under_way


def end_within(works: Iterable[Callable[[], object]], timeout_s: float) -> bool:
    """Whether all did, each in a thread of its own, in which it goes on if not. None of them may raise."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for each in threads:
        each.start()
    end_s = time.monotonic() + timeout_s
    for each in threads:
        each.join(max(end_s - time.monotonic(), 0.0))
    return not any(each.is_alive() for each in threads)
