"""What exchanges of the type x-recent-history keep, and what gets it.

What comes in: runs that passed such an exchange; changes of the topology. What goes out: the kept messages, oldest
first, for every queue or exchange that is newly bound.
Rules: 1. An exchange keeps its last messages, as many as its length says, and at most `EXCHANGE_BYTES_MAX`; all of
them together keep `BYTES_MAX`, and what stands in an exchange that was quiet longest goes first. 2. In memory only:
after a restart the history is empty, as in RabbitMQ 3. 3. A binding gets it once, when it is made.
Not here: which exchanges keep what (`exchanges/recent_history.py`), the way of what was kept to its queues
(`history_replay.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from amqpd.exchanges import Reads
from amqpd.kernel import Run
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import BindingRecord, Change, Key, Put

# A run takes so much in memory beside its bytes.
RUN_BYTES = 256
EXCHANGE_BYTES_MAX = 4 * 1024 * 1024
BYTES_MAX = 64 * 1024 * 1024

Name = tuple[str, str]
"""virtual host and exchange"""
Give = Callable[[BindingRecord, tuple[Run, ...]], None]


class _History:
    __slots__ = ("count", "nbytes", "runs")

    def __init__(self) -> None:
        self.runs: deque[Run] = deque()
        self.count = 0
        self.nbytes = 0

    def add(self, run: Run, length: int) -> None:
        """Keep the last `length` messages."""
        self._append(run if run.count <= length else run.part(run.count - length, run.count))
        while self.count > length:
            self._trim(self.count - length)
        while self.nbytes > EXCHANGE_BYTES_MAX:
            self._trim(1)

    def _append(self, run: Run) -> None:
        self.runs.append(run)
        self.count += run.count
        self.nbytes += run.nbytes + RUN_BYTES

    def _trim(self, surplus: int) -> None:
        """Forget at most `surplus` of the oldest messages, one run's at most."""
        oldest = self.runs.popleft()
        self.count -= oldest.count
        self.nbytes -= oldest.nbytes + RUN_BYTES
        if oldest.count > surplus:
            rest = oldest.part(surplus, oldest.count)
            self.runs.appendleft(rest)
            self.count += rest.count
            self.nbytes += rest.nbytes + RUN_BYTES

    def forget_oldest_run(self) -> None:
        self._trim(self.runs[0].count)


class Histories:
    """The messages that the exchanges of the type x-recent-history keep at one node."""

    def __init__(self, topology: Topology, give: Give) -> None:
        """`give` is called with a new binding and what it is to get."""
        self._topology = topology
        self._give = give
        self._histories: dict[Name, _History] = {}
        """the one that was quiet longest first"""
        self._bound: dict[Name, set[Key]] = {}
        """the bindings that have had it"""
        self.nbytes = 0

    def keep(self, vhost: str, exchange: str, length: int, run: Run) -> None:
        """The run passed this exchange, which keeps `length` messages. It has its bytes for itself."""
        history = self._histories.pop((vhost, exchange), None) or _History()
        self._histories[vhost, exchange] = history
        before = history.nbytes
        history.add(run, length)
        self.nbytes += history.nbytes - before
        while self.nbytes > BYTES_MAX:
            name, oldest = next(iter(self._histories.items()))
            before = oldest.nbytes
            oldest.forget_oldest_run()
            self.nbytes += oldest.nbytes - before
            if not oldest.runs:
                del self._histories[name]

    def count(self, vhost: str, exchange: str) -> int:
        history = self._histories.get((vhost, exchange))
        return 0 if history is None else history.count

    def applied(self, changes: Iterable[Change]) -> None:
        """The topology has changed so: what is bound since gets what was kept."""
        for change in changes:
            if isinstance(change, Put):
                if isinstance(change.record, BindingRecord):
                    self._bind(change.record)
            elif change.key[0] == "binding":
                bound = self._bound.get((change.key[1], change.key[2]))
                if bound is not None:
                    bound.discard(change.key)
            elif change.key[0] == "exchange":
                self._forget((change.key[1], change.key[2]))
            elif change.key[0] == "vhost":
                for name in [name for name in (*self._histories, *self._bound) if name[0] == change.key[1]]:
                    self._forget(name)

    def _forget(self, name: Name) -> None:
        history = self._histories.pop(name, None)
        if history is not None:
            self.nbytes -= history.nbytes
        self._bound.pop(name, None)

    def _bind(self, binding: BindingRecord) -> None:
        contents = self._topology.vhosts.get(binding.vhost)
        state = contents.exchanges.get(binding.source) if contents is not None else None
        if state is None or not state.matcher.reads & Reads.KEEPS:
            return
        bound = self._bound.setdefault((binding.vhost, binding.source), set())
        if binding.key not in bound:
            bound.add(binding.key)
            history = self._histories.get((binding.vhost, binding.source))
            if history is not None:
                self._give(binding, tuple(history.runs))
