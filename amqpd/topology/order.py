"""The order in which bindings and removals go to the metadata store.

What comes in: bindings to make and records to remove, each with what to call when it is done. What goes out: changes,
submitted; the calls, after the changes were applied.
Rules: 1. A removal is planned while no binding and no other removal is on its way: what goes along with it depends on
both, and a binding that it does not know of would outlive its queue. 2. Removals that wait together are planned
together and make one transaction, so the end of a connection with a thousand queues is one commit. 3. Nothing
overtakes a removal that waits. 4. Declarations need no order: what is not there yet has no bindings.
Not here: what goes along with what (`plans.py`), the store (`sync.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pamqp.exceptions import AMQPError

from amqpd.topology import plans
from amqpd.topology.records import BindingRecord, Change, ExchangeRecord, Key, Put, QueueRecord
from amqpd.topology.state import Topology

# Removals in one transaction: it holds the store for some milliseconds, and others wait behind it.
REMOVALS_MAX = 1_000

Resume = Callable[[bool], None]
Submit = Callable[[Sequence[Change], Resume, Iterable[Key]], None]
Removable = QueueRecord | ExchangeRecord | BindingRecord


class _Wish(NamedTuple):
    """A removal on a condition; or, without one, a binding to make."""

    record: Removable
    resume: Resume
    condition: Callable[[], bool] | None


class ChangeOrder:
    def __init__(self, topology: Topology, submit: Submit, bug: Callable[[Exception], None]) -> None:
        """`submit` and `bug` are those of `node.Services`: what an answer raises does not keep the others waiting."""
        self._topology = topology
        self._submit = submit
        self._bug = bug
        self._waiting: deque[_Wish] = deque()
        self._binding = 0
        """bindings on their way"""
        self._removing = False

    def bind(self, binding: BindingRecord, resume: Resume) -> None:
        """Make the binding: resume(True) when it is there, resume(False) when an end of it had gone, or when it could
        not be asked for: then look again. Raises what `submit` raises."""
        if self._waiting:
            self._waiting.append(_Wish(binding, resume, None))
        else:
            self._bind(binding, resume)

    def remove(self, record: Removable, resume: Resume, condition: Callable[[], bool] = lambda: True) -> None:
        """Remove the record and what goes along with it; resume(True) when it is gone, maybe at once; resume(False)
        when its turn came and the condition did not hold."""
        self._waiting.append(_Wish(record, resume, condition))
        self._advance()

    def _advance(self) -> None:
        refused: list[Resume] = []
        self._take_waiting(refused)
        # Whoever asked asks again, and the error is theirs. Not before the others had their turn: behind one that
        # waits they would only wait again, and this would never end.
        for resume in refused:
            self._answer(resume, False)

    def _take_waiting(self, refused: list[Resume]) -> None:
        """Submit what waits, in order, as far as it may go now. `refused` gets the bindings that cannot be asked for
        now."""
        waiting = self._waiting
        while waiting:
            if waiting[0].condition is not None:
                if self._binding or self._removing:
                    return
                self._remove()
                continue
            binding, resume, _ = waiting.popleft()
            assert isinstance(binding, BindingRecord)
            try:
                self._bind(binding, resume)
            except AMQPError:
                refused.append(resume)

    def _answer(self, resume: Resume, answer: bool) -> None:
        try:
            resume(answer)
        except Exception as error:  # noqa: BLE001 - what waits behind it must go on; services.bug reports it
            self._bug(error)

    def _bind(self, binding: BindingRecord, resume: Resume) -> None:
        def done(made: bool) -> None:
            self._binding -= 1
            self._answer(resume, made)
            self._advance()

        ends = (
            ("exchange", binding.vhost, binding.source),
            (binding.destination_type, binding.vhost, binding.destination),
        )
        self._submit([Put(binding)], done, ends)
        self._binding += 1

    def _remove(self) -> None:
        answers: list[tuple[Resume, bool]] = []
        by_vhost: dict[str, list[Removable]] = {}
        while self._waiting and len(answers) < REMOVALS_MAX:
            record, resume, condition = self._waiting[0]
            if condition is None:
                break
            self._waiting.popleft()
            holds = condition()
            answers.append((resume, holds))
            if holds:
                by_vhost.setdefault(record.vhost, []).append(record)

        def answer_all() -> None:
            self._removing = False
            for resume, holds in answers:
                self._answer(resume, holds)

        def done(_: bool) -> None:
            answer_all()
            self._advance()

        changes: list[Change] = []
        for name, records in by_vhost.items():
            vhost = self._topology.vhosts.get(name)
            if vhost is not None:
                changes += plans.remove(vhost, records)
        if changes:
            self._removing = True
            self._submit(changes, done, ())
        else:
            answer_all()
