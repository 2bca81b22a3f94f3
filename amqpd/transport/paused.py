"""The links that are not read now, and which of them to look at next.

What comes in: links that must wait; word that something has happened, after which some may go on. What goes out: a
few of them at a time, in turn.
Rules: 1. Looking at all of them after each tick would cost all clients milliseconds, with ten thousand publishers
that an alarm has blocked. 2. Each is looked at after whatever happened last, so none waits for good: while `unlooked`
says so the pump goes on.
Not here: whether one may be read (`Connection.reading_paused`), reading (`pump.py`).
"""

from __future__ import annotations

from collections import OrderedDict

from amqpd.transport.link import Link

# In one tick: a tenth of a millisecond of work.
LOOKS_MAX = 128


class PausedLinks:
    """The links that are not read, in the order in which they were last looked at."""

    def __init__(self) -> None:
        self._links: OrderedDict[Link, None] = OrderedDict()
        self.unlooked = 0
        """how many have not been looked at since something happened"""

    def __bool__(self) -> bool:
        return bool(self._links)

    def __contains__(self, link: Link) -> bool:
        return link in self._links

    def add(self, link: Link) -> None:
        self._links[link] = None

    def discard(self, link: Link) -> None:
        self._links.pop(link, None)

    def changed(self) -> None:
        """Something has happened: any of them may go on."""
        self.unlooked = len(self._links)

    def next(self) -> list[Link]:
        """Those to look at now."""
        count = min(len(self._links), LOOKS_MAX)
        self.unlooked = max(0, min(self.unlooked, len(self._links)) - count)
        found: list[Link] = []
        for _ in range(count):
            link = next(iter(self._links))
            self._links.move_to_end(link)
            found.append(link)
        return found
