"""Changes of the topology that wait for the metadata store, and whose turn it is.

What comes in: transactions, each with the client that asked for it. What goes out: the next ones to commit together.
Rules: 1. Clients take turns, one transaction at a time: one that declares on thousands of channels at once does not
delay another's declaration by more than two commits. 2. Of one client they stay in order. 3. Deletions go first, in
order: what is declared again behind a deletion must not meet what is being deleted, nor be deleted by it. 4. A
deletion of what is still waiting to be put goes behind that; everything that waits stays in order then.
Not here: how many may wait (`channels.py` counts what a suspended channel holds), committing
(`topology/metadata/sync.py`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

from amqpd.topology.metadata.store import DeleteKey, MetadataTransaction, PutKey

Resume = Callable[[bool], None]


class Submission(NamedTuple):
    """A transaction that waits, and the function to call with its outcome."""

    number: int
    """in the order in which they were submitted"""
    transaction: MetadataTransaction
    resume: Resume

    @property
    def puts(self) -> bool:
        return any(isinstance(operation, PutKey) for operation in self.transaction.operations)

    @property
    def deletes(self) -> bool:
        return any(isinstance(operation, DeleteKey) for operation in self.transaction.operations)


class Submissions:
    """Transactions that wait for the store: deletions in their order first, then one of each client in turn."""

    def __init__(self) -> None:
        self._count = 0
        self._first: deque[Submission] = deque()
        # The next owner to have a turn is the first.
        self._by_owner: OrderedDict[str, deque[Submission]] = OrderedDict()
        self._putting: Counter[str] = Counter()
        """keys of what waits in `_by_owner`"""

    def __bool__(self) -> bool:
        return bool(self._first or self._by_owner)

    def __len__(self) -> int:
        return len(self._first) + sum(map(len, self._by_owner.values()))

    def add(self, transaction: MetadataTransaction, resume: Resume, owner: str) -> None:
        self._count += 1
        submission = Submission(self._count, transaction, resume)
        keys = [operation.key for operation in transaction.operations]
        if submission.deletes:
            if any(key in self._putting for key in keys):
                self._keep_order()
            self._first.append(submission)
        else:
            self._by_owner.setdefault(owner, deque()).append(submission)
            self._putting.update(keys)

    def take(self, count: int) -> list[Submission]:
        """The next ones, `count` at most."""
        taken: list[Submission] = []
        while self._first and len(taken) < count:
            taken.append(self._first.popleft())
        while self._by_owner and len(taken) < count:
            owner, waiting = self._by_owner.popitem(last=False)
            taken.append(waiting.popleft())
            if waiting:
                self._by_owner[owner] = waiting
            for operation in taken[-1].transaction.operations:
                self._putting[operation.key] -= 1
                if not self._putting[operation.key]:
                    del self._putting[operation.key]
        return taken

    def _keep_order(self) -> None:
        waiting = [submission for each in self._by_owner.values() for submission in each]
        self._first = deque(sorted([*self._first, *waiting], key=lambda submission: submission.number))
        self._by_owner.clear()
        self._putting.clear()
