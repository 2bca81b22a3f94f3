"""A node of `tests/harness/harness.py` that records everything, over restarts.

What comes in: a level. What goes out: rows.
Not here: real files, real brokers (`test_writer.py`, `test_live.py`).
"""

from __future__ import annotations

from amqpd.audit.coverage.anchors import anchor
from amqpd.audit.coverage.coverage import Coverage
from amqpd.audit.epochs import Epochs, Eras
from amqpd.audit.kinds import ANCHOR_RECOVERED
from amqpd.audit.recorder import Recorder
from amqpd.vocabulary.audit_levels import FULL, Level
from amqpd.vocabulary.records import Delete, PolicyRecord, Put
from tests.audit.reading import Row, only, rows_of
from tests.harness.harness import Harness

MESSAGES = (
    *("published", "returned", "unroutable", "confirmed", "refused", "routed", "delivered", "requeued", "acked"),
    *("expired", "dropped", "rejected", "dead_lettered", "purged", "moved", "released", "standing"),
)


class RecordedHarness(Harness):
    """Its clock shows the node's milliseconds, and a second."""

    def __init__(self, level: Level = FULL, **vhosts: Level) -> None:
        self.level = level
        self.vhosts = vhosts
        self.incarnation = 0
        self.eras: dict[int, Eras] = {}
        super().__init__()
        self.log_rows()

    def audit(self) -> tuple[Recorder | None, Coverage | None]:
        self.incarnation += 1
        self.recorder = Recorder(lambda: 1_000_000 + self.node.now_ms * 1000)
        self.recorder.incarnation = self.incarnation
        return self.recorder, Coverage(self.recorder, self.level, self.vhosts, Epochs(self.incarnation, self.eras))

    def restart(self) -> None:
        super().restart()
        self.eras = self.node.books.kept_eras
        for queue in self.node.audited():
            anchor(self.recorder, queue, ANCHOR_RECOVERED)

    def log_rows(self, *events: str) -> list[Row]:
        """What was recorded of messages since the last time; of these events."""
        rows = rows_of(self.recorder)
        self.recorder.buffer.begin_file()
        return only(rows, *(events or MESSAGES))

    def acts(self) -> list[Row]:
        """What was done since the last time."""
        rows = rows_of(self.recorder)
        self.recorder.buffer.begin_file()
        return [row for row in rows if row["event"] not in MESSAGES]

    def policy(self, **definition: object) -> None:
        """Of all queues; none: there is none."""
        named = {key.replace("_", "-"): value for key, value in definition.items()}
        self._apply([Put(PolicyRecord("/", "p", "", "queues", named)) if named else Delete(("policy", "/", "p"))])
        self.step()
