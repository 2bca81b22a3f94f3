"""The order in which bindings and removals go to the metadata store.

What comes in: bindings to make and records to remove, each with what to call when it is done. What goes out: changes,
submitted; the calls, after the changes were applied.
Rules: 1. A removal is planned while no binding and no other removal is on its way: what goes along with it depends on
both, and a binding that it does not know of would outlive its queue. 2. Removals that wait are planned together and
make one transaction, so the end of a connection with a thousand queues is one commit; what has thousands of bindings
loses them in several, and goes with the last: a crash before leaves it, with fewer of them, and its deletion not
answered. 3. When both wait, bindings and
removals take turns, and in each turn all clients that wait have the same share: one with thousands of them waiting
delays another's by two turns. 4. Of one connection they stay in their order. 5. Declarations need no order: what is
not there yet has no bindings.
Not here: what goes along with what (`plans.py`), the store (`metadata/sync.py`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import NamedTuple

from pamqp.exceptions import AMQPError

from amqpd.topology import plans
from amqpd.topology.state import Topology
from amqpd.vocabulary.caller import Caller
from amqpd.vocabulary.client import Client
from amqpd.vocabulary.records import BindingRecord, Change, ExchangeRecord, Key, Put, QueueRecord

# Removals in one transaction: it holds the store for some milliseconds, and others wait behind it. And bindings on
# their way at a time, which a removal has to wait for.
REMOVALS_MAX, BINDINGS_MAX = 1_000, 500
# Changes in a transaction of removals: to plan, write and apply one takes some 20 us of the thread that all clients
# wait for. More than BINDINGS_MAX, or a queue that is bound again and again would stay.
CHANGES_MAX = 1_000

Resume = Callable[[bool], None]
Removable = QueueRecord | ExchangeRecord | BindingRecord


Owner = Client | Caller | None
"""who asks; None: the node itself"""


class OrderedRequest(NamedTuple):
    """A removal on a condition; or, without one, a binding to make. `owner` asks for it."""

    record: Removable
    resume: Resume
    condition: Callable[[], bool] | None
    owner: Owner


Submit = Callable[[Sequence[Change], Resume, Iterable[Key], Sequence[OrderedRequest]], None]
"""as `Services.submit`, and whose requests the changes fulfil"""


class ChangeOrder:
    """Puts bindings and removals into transactions, in the order that keeps answers true."""

    def __init__(self, topology: Topology, submit: Submit, bug: Callable[[Exception], None]) -> None:
        """`submit` and `bug` are those of `node.Services`: what an answer raises does not keep the others waiting."""
        self._topology = topology
        self._submit = submit
        self._bug = bug
        self._waiting: OrderedDict[Owner, deque[OrderedRequest]] = OrderedDict()
        """by owner; the one that has the next share is first"""
        self._binding = 0
        """bindings on their way"""
        self._removing = False
        self._removals_next = False
        """removals wait for the bindings that are on their way, and other bindings for the removals"""

    def bind(self, binding: BindingRecord, resume: Resume, owner: Owner = None) -> None:
        """Make the binding: resume(True) when it is there, resume(False) when an end of it had gone, or when it could
        not be asked for: then look again. Raises what `submit` raises."""
        request = OrderedRequest(binding, resume, None, owner)
        if self._waiting or self._binding >= BINDINGS_MAX:
            self._waiting.setdefault(owner, deque()).append(request)
        else:
            self._bind(request)

    def remove(
        self,
        record: Removable,
        resume: Resume,
        condition: Callable[[], bool] = lambda: True,
        owner: Owner = None,
    ) -> None:
        """Remove the record and what goes along with it; resume(True) when it is gone, maybe at once; resume(False)
        when its turn came and the condition did not hold."""
        self._waiting.setdefault(owner, deque()).append(OrderedRequest(record, resume, condition, owner))
        self._advance()

    def _advance(self) -> None:
        refused: list[Resume] = []
        self._take_waiting(refused)
        # The client asks again, and the error is its own. Not before the others had their turn: behind one that
        # waits they would only wait again, and this would never end.
        for resume in refused:
            self._answer(resume, False)

    def _take_waiting(self, refused: list[Resume]) -> None:
        """Submit what waits, as far as it may go now. `refused` gets the bindings that cannot be asked for now."""
        while self._waiting and not self._removing:
            if not self._removals_next:
                for request in self._take(False, BINDINGS_MAX - self._binding):
                    try:
                        self._bind(request)
                    except AMQPError:
                        refused.append(request.resume)
                self._removals_next = any(requests[0].condition is not None for requests in self._waiting.values())
                if not self._removals_next and self._binding:
                    return
            elif self._binding:
                return
            else:
                self._removals_next = False
                self._remove(self._take(True, REMOVALS_MAX))

    def _take(self, removals: bool, most: int) -> list[OrderedRequest]:
        """At most `most` requests that nothing of the other kind stands before: of each owner the same share, and
        more if there is space."""
        taken: list[OrderedRequest] = []
        before = -1
        while len(taken) < most and len(taken) > before:
            before = len(taken)
            share = max(1, (most - before) // max(1, len(self._waiting)))
            for owner in list(self._waiting):
                requests = self._waiting[owner]
                stop = min(most, len(taken) + share)
                while requests and len(taken) < stop and (requests[0].condition is not None) == removals:
                    taken.append(requests.popleft())
                if not requests:
                    del self._waiting[owner]
                else:
                    self._waiting.move_to_end(owner)
                if len(taken) >= most:
                    break
        return taken

    def _answer(self, resume: Resume, answer: bool) -> None:
        try:
            resume(answer)
        except Exception as error:  # noqa: BLE001 - what waits behind it must go on; services.bug reports it
            self._bug(error)

    def _bind(self, request: OrderedRequest) -> None:
        binding = request.record
        assert isinstance(binding, BindingRecord)

        def done(made: bool) -> None:
            self._binding -= 1
            self._answer(request.resume, made)
            self._advance()

        ends = (
            ("exchange", binding.vhost, binding.source),
            (binding.destination_type, binding.vhost, binding.destination),
        )
        self._submit([Put(binding)], done, ends, [request])
        self._binding += 1

    def _remove(self, requests: list[OrderedRequest]) -> None:
        """As many of them as make a transaction; the others wait on, in front of their owner's."""
        answers: list[tuple[Resume, bool]] = []
        by_vhost: dict[str, list[Removable]] = {}
        left, taken = CHANGES_MAX, 0
        for request in requests:
            vhost = self._topology.vhosts.get(request.record.vhost)
            along = [] if vhost is None else plans.bindings_along(vhost, request.record)
            left -= 1 + sum(map(len, along))
            if left < 0 and taken:
                break
            taken += 1
            holds = request.condition is not None and request.condition()
            if holds and left < 0:
                # A part of what goes along with it, and then it is its turn again: what it depended on held.
                by_vhost[request.record.vhost] = list(islice(chain.from_iterable(along), CHANGES_MAX))
                requests[taken - 1 :] = [request, request._replace(condition=_always), *requests[taken:]]
                break
            answers.append((request.resume, holds))
            if holds:
                by_vhost.setdefault(request.record.vhost, []).append(request.record)
        self._put_back(requests[taken:])

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
            self._submit(changes, done, (), requests[:taken])
        else:
            answer_all()

    def _put_back(self, requests: list[OrderedRequest]) -> None:
        for request in reversed(requests):
            self._waiting.setdefault(request.owner, deque()).appendleft(request)


def _always() -> bool:
    return True
