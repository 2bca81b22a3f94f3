"""How much is recorded: of the node, of a virtual host, of a queue.

What comes in: a level as text. What goes out: `Level`.
Rules: 1. Each level has what the ones before it have: off, admin, counts, sample(p), full; but where a queue's
messages are recorded, its figures are not written down too. 2. A policy's key `audit` is stronger than the virtual
host's level.
Not here: which virtual host has which (`config.py`), what is recorded then (`audit/recorder.py`).
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

SHARE_FULL: Final = 1 << 32
"""of the hash that decides on a stretch: all of it"""

_SAMPLE = re.compile(r"sample\(\s*(\d*\.?\d+(?:e-?\d+)?)\s*\)")
WORDS = "off, admin, counts, sample(p) with 0 < p <= 1, or full"


class Level(NamedTuple):
    """A level of the audit log: what is recorded; of messages, `share` of SHARE_FULL."""

    text: str
    acts: bool
    counts: bool
    share: int


OFF = Level("off", False, False, 0)
ADMIN = Level("admin", True, False, 0)
COUNTS = Level("counts", True, True, 0)
FULL = Level("full", True, False, SHARE_FULL)
_PLAIN = {level.text: level for level in (OFF, ADMIN, COUNTS, FULL)}


def parse_level(text: Any) -> Level:
    """Raises ValueError with the words that there are."""
    if isinstance(text, str):
        word = text.strip().lower()
        if word in _PLAIN:
            return _PLAIN[word]
        sample = _SAMPLE.fullmatch(word)
        if sample is not None and 0 < float(sample[1]) <= 1:
            share = float(sample[1])
            return FULL if share == 1 else Level(f"sample({sample[1]})", True, False, max(1, int(share * SHARE_FULL)))
    raise ValueError(f"must be a level: {WORDS}")


def is_level(text: Any) -> bool:
    try:
        parse_level(text)
    except ValueError:
        return False
    return True
