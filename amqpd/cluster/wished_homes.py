"""Homes that operators wish for and that did not take over when they were asked to: asked again later.

What comes in: sources that this forwarder has taken over, with the home that they had; wishes; the time. What goes
out: why a source is not handed over now.
Rules: 1. A source that was handed over, or whose home was the one that is wished for, and that this forwarder has
taken over in its place, is not handed over again for `AGAIN_S`, then for twice that, and so on: each time its clients
are interrupted. 2. Forgotten with the wish: who takes it back and puts it again has it tried at once. 3. Known to
this forwarder only: the next home may try once, and then waits, too.
Not here: whether the wished home has everything (`replication/set_change.py`), the others' turn (`succession.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amqpd.cluster.records import WishRecord
from amqpd.replication.seal import Seal

AGAIN_S = 30.0
"""after the first failure"""
AGAIN_S_MAX = 960.0


@dataclass(frozen=True, slots=True)
class _Failure:
    home: str
    """that was wished for; empty: any of the set"""
    after_s: float
    until_s: float


class WishedHomes:
    """Of one forwarder."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._failures: dict[int, _Failure] = {}

    def wishes_are(self, wishes: Mapping[int, WishRecord]) -> None:
        """Those that there are."""
        self._failures = {
            source: each
            for source, each in self._failures.items()
            if source in wishes and wishes[source].home == each.home
        }

    def took_over(self, wish: WishRecord, before: Seal, now_s: float) -> None:
        """This forwarder did, from this home."""
        handed_over = before.epoch > 0 and not before.forwarder
        mine = wish.home == self._name if wish.home else not wish.members or self._name in wish.members
        if mine:
            self._failures.pop(wish.source, None)
        elif handed_over or before.forwarder == wish.home:
            last = self._failures.get(wish.source)
            after_s = AGAIN_S if last is None or last.home != wish.home else min(2 * last.after_s, AGAIN_S_MAX)
            self._failures[wish.source] = _Failure(wish.home, after_s, now_s + after_s)

    def waits(self, wish: WishRecord, now_s: float) -> str:
        """Why it is not to be handed over now; empty: it is."""
        each = self._failures.get(wish.source)
        if each is None or each.home != wish.home or each.until_s <= now_s:
            return ""
        who = each.home or "no other member"
        return f"{who} could not take it over when asked, and is asked again {each.after_s:.0f} s after that"
