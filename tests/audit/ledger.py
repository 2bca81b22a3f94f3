"""The log's rows, added up message by message, as docs/audit.md says that they may be.

What comes in: the rows of one incarnation of a node after another, and what really happened. What goes out: an
AssertionError where the two differ, or where the log contradicts itself.
Rules: 1. Plain lists and sets, one entry for each message: slow, and easy to believe. 2. With a sample, a message is
in the log with its whole incarnation or not at all, as the hash says.
Not here: where rows come from (`audited.py`, `reading.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from amqpd.audit import book
from amqpd.audit.sample import hashed
from amqpd.vocabulary.audit_levels import SHARE_FULL, Level
from tests.audit.reading import Row

Key = tuple[int, int, int]
"""queue_id, epoch, number: a message in a queue, for ever"""
ENDS = ("acked", "expired", "dropped", "rejected", "dead_lettered", "purged", "moved", "released")
FACT_OF = {
    ("acked", None): "acked",
    ("expired", None): "expired",
    ("dropped", None): "dropped",
    ("rejected", "rejected"): "rejected",
    ("rejected", "delivery_limit"): "delivery_limit",
    ("dead_lettered", "expired"): "expired",
    ("dead_lettered", "maxlen"): "dropped",
    ("dead_lettered", "rejected"): "rejected",
    ("dead_lettered", "delivery_limit"): "delivery_limit",
    ("purged", "purge"): "purged",
}
LEVELS = 256
"""a queue's number is a multiple of it; those of its levels follow"""


@dataclass
class Truth:
    """What happened, known from elsewhere than the log. Bodies hold numbers."""

    entered: dict[Key, int] = field(default_factory=dict)
    """the number in the body of each message that came into a queue"""
    delivered: list[tuple[str, int, bool, str]] = field(default_factory=list)
    """to consumers: queue, body, redelivered, consumer tag; since the ledger was told last"""
    told: dict[tuple[int, str, int, int], tuple[str, int]] = field(default_factory=dict)
    """incarnation, connection, channel, confirm tag -> ack or nack, body"""
    facts: dict[int, Mapping[str, int]] = field(default_factory=dict)
    """of each queue that is there, in this incarnation"""


class Ledger:
    def __init__(self, level: Level, truth: Truth) -> None:
        self._level = level
        self._truth = truth
        self.alive: dict[Key, Row] = {}
        """what stands in its queue, with its `routed`"""
        self._routed: dict[Key, Row] = {}
        self._out: set[Key] = set()
        """delivered, and neither ended nor back"""
        self._published: dict[tuple[int, int], tuple[str | None, int]] = {}
        """incarnation, publication -> connection, confirm tag"""
        self._bodies: dict[tuple[int, int], int] = {}
        """of each publication that was routed"""
        self._confirmed: dict[tuple[int, str, int, int], tuple[str, int]] = {}
        """as `Truth.told`, with the publication"""
        self._next: dict[int, int] = {}
        self._number = 0
        self._counts: Counter[tuple[int, str]] = Counter()
        self._given: list[tuple[str, int, bool, str]] = []
        self._orderly = False
        self._incarnation = 0
        self._recovered_in = 0
        """the incarnation whose first anchors were seen last"""
        self.seen: Counter[tuple[str, str | None]] = Counter()
        """events and reasons"""

    def add(self, rows: list[Row], orderly: bool) -> None:
        """The next rows, up to the next anchors at an end, perhaps of another incarnation; `orderly`: that is its
        end."""
        if rows and rows[0]["incarnation"] != self._incarnation:
            self._incarnation, self._number = rows[0]["incarnation"], 0
            self._next, self._counts = {}, Counter()
            self._out = set()
        anchors = Anchors()
        begun = self._recovered_in == self._incarnation
        for row in rows:
            assert row["number"] > self._number, "numbers go up"
            self._number = row["number"]
            self.seen[row["event"], row["reason"]] += 1
            if row["event"] == "standing":
                anchors.add(row)
                if row["reason"]:
                    known = self._next.setdefault(row["queue_id"], row["first"])
                    assert known == row["first"] or self._sampled, row
                continue
            if not begun:
                # Anchors come first.
                self._recover(anchors.standing["recovered"])
                begun = True
            self._event(row)
        if not begun:
            self._recover(anchors.standing["recovered"])
        found = anchors.standing["stopped"]
        assert found == set(self.alive), difference(found, self.alive)
        self._check_truth()
        self._orderly = orderly

    @property
    def _sampled(self) -> bool:
        return self._level.share < SHARE_FULL

    def _recover(self, standing: set[Key]) -> None:
        self._recovered_in = self._incarnation
        unknown = standing - set(self._routed)
        assert not unknown, f"recovered, and never routed: {sorted(unknown)}"
        assert all(self._routed[key]["persistent"] for key in standing)
        lost = {key for key, row in self.alive.items() if key not in standing and self._must_survive(row)}
        assert not lost, f"confirmed or stopped in order, and lost: {sorted(lost)}"
        if self._orderly:
            back = standing - set(self.alive)
            assert not back, f"ended, and there again after an orderly stop: {sorted(back)}"
        self.alive = {key: self._routed[key] for key in standing}
        for key in standing:
            self._counts[key[0] // LEVELS, "recovered"] += 1

    def _must_survive(self, row: Row) -> bool:
        if not row["persistent"]:
            return False
        tag = (row["incarnation"], row["connection"], row["channel"], row["confirm_tag"])
        return self._orderly or self._confirmed.get(tag, ("", 0))[0] == "ack"

    # One row

    def _event(self, row: Row) -> None:
        event, incarnation = row["event"], row["incarnation"]
        if event == "published":
            for i in range(row["count"]):
                key = (incarnation, row["publication"] + i)
                assert key not in self._published, f"{key} is published twice"
                self._published[key] = (row["connection"], row["confirm_tag"] + i if row["confirm_tag"] else 0)
        elif event in ("confirmed", "refused"):
            for i in range(row["count"]):
                tag = (incarnation, row["connection"], row["channel"], row["confirm_tag"] + i)
                assert tag not in self._confirmed, f"{tag} is told twice"
                self._confirmed[tag] = ("ack" if event == "confirmed" else "nack", row["publication"] + i)
        elif event == "routed":
            self._enter(row)
        elif row["queue"] is not None:
            self._in_queue(row)

    def _enter(self, row: Row) -> None:
        assert row["epoch"] == row["incarnation"]
        if not self._sampled:
            assert row["first"] == self._next.get(row["queue_id"], 0), f"a gap before {row}"
        self._next[row["queue_id"]] = row["first"] + row["count"]
        for i, key in enumerate(keys(row)):
            assert key not in self._routed, f"{key} is routed twice"
            one = {**row, "confirm_tag": row["confirm_tag"] + i if row["confirm_tag"] else 0}
            self.alive[key] = self._routed[key] = one
            self._counts[key[0] // LEVELS, "routed"] += 1
            of, body = (row["incarnation"], row["publication"] + i), self._truth.entered[key]
            assert self._bodies.setdefault(of, body) == body, f"{of} is {self._bodies[of]} and {body}"

    def _in_queue(self, row: Row) -> None:
        event = row["event"]
        assert event in ("delivered", "requeued", *ENDS), row
        for i, key in enumerate(keys(row)):
            assert key in self.alive, f"{event}, and not there: {row}"
            if event == "delivered":
                assert key not in self._out, f"delivered twice: {row}"
                self._out.add(key)
                if row["consumer"]:
                    given = (row["queue"], self._truth.entered[key], row["redelivered"], row["consumer"])
                    self._given.append(given)
            elif event == "requeued":
                assert key in self._out, f"requeued, and was not out: {row}"
                self._out.remove(key)
            else:
                self._end(row, key, i)

    def _end(self, row: Row, key: Key, i: int) -> None:
        event = row["event"]
        assert event != "acked" or key in self._out, f"acked, and was not out: {row}"
        self._out.discard(key)
        del self.alive[key]
        assert (row["publication"] > 0) == (event in ("dead_lettered", "moved", "released")), row
        if row["publication"]:
            of = (row["incarnation"], row["publication"] + i)
            assert of in self._published or self._sampled, f"there is no {of}, of {row}"
            body = self._truth.entered[key]
            assert self._bodies.get(of, body) == body, f"the dead letter of {body} is of {self._bodies[of]}: {row}"
        fact = FACT_OF.get((event, row["reason"]))
        if fact is not None:
            self._counts[key[0] // LEVELS, fact] += 1
        if event == "dead_lettered":
            self._counts[key[0] // LEVELS, "dead_lettered"] += 1

    # Against the truth

    def _check_truth(self) -> None:
        truth = self._truth
        wanted = {key for key in truth.entered if self._is_recorded(key)}
        assert set(self._routed) == wanted, difference(set(self._routed), wanted)
        for tag, (kind, body) in truth.told.items():
            found = self._confirmed.get(tag)
            assert found is not None, f"{tag} was told {kind}, and the log says nothing"
            assert found[0] == kind, f"{tag} was told {kind}, the log says {found[0]}"
            assert self._bodies.get((tag[0], found[1]), body) == body, f"{tag} is {body}, the log says another one"
        for (incarnation, connection, _, tag_number), (_, publication) in self._confirmed.items():
            known = self._published.get((incarnation, publication))
            assert self._sampled or known is not None, f"{publication} is confirmed, and was never published"
            assert known is None or known == (connection, tag_number), f"{publication}: {known}, {tag_number}"
        if not self._sampled:
            self._check_sums()
        truth.delivered.clear()
        self._given = []

    def _check_sums(self) -> None:
        truth = self._truth
        assert self._given == truth.delivered
        for queue_id, facts in truth.facts.items():
            of = queue_id // LEVELS
            for fact in ("acked", "expired", "dropped", "rejected", "delivery_limit", "purged", "dead_lettered"):
                assert self._counts[of, fact] == facts[fact], f"{fact}: the log has {self._counts[of, fact]}, {facts}"
            came = self._counts[of, "routed"] + self._counts[of, "recovered"]
            assert came == facts["accepted"], f"accepted: the log has {came}, {facts}"
            assert facts["stands"] == sum(key[0] // LEVELS == of for key in self.alive), facts

    def _is_recorded(self, key: Key) -> bool:
        # As the book has it, for tests replace it there.
        together = book.SAMPLED_TOGETHER  # type: ignore[attr-defined]
        return hashed(key[0], key[2] // together) < self._level.share


class Anchors:
    """What they say, by their reason."""

    def __init__(self) -> None:
        self.standing: dict[str, set[Key]] = {"recovered": set(), "stopped": set()}
        self._reason = ""
        self._left = 0

    def add(self, row: Row) -> None:
        if row["reason"]:
            assert not self._left, "an anchor is in one piece"
            self._reason, self._left = row["reason"], int(row["detail"])
            return
        self._left -= 1
        assert self._left >= 0
        self.standing[self._reason] |= set(keys(row))


def keys(row: Row) -> Iterator[Key]:
    for number in range(row["first"], row["first"] + row["count"]):
        yield row["queue_id"], row["epoch"], number


def difference(found: Iterable[Any], wanted: Iterable[Any]) -> str:
    found, wanted = set(found), set(wanted)
    return f"too many: {sorted(found - wanted)}, missing: {sorted(wanted - found)}"
