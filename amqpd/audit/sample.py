"""Which messages a sample takes: whole blocks of neighbours, by a hash that is the same everywhere.

What comes in: a queue's or publication's number, a block. What goes out: 32 bits to compare with a share.
Rules: 1. Of a message all events are in the sample or none. 2. The hash never changes: two nodes, and two versions,
take the same messages.
Not here: shares (`vocabulary/audit_levels.py`).
"""

from __future__ import annotations

from typing import Final

STRETCH_MAX: Final = 65_536
"""messages in one record: its reader makes a row for each"""
SAMPLED_TOGETHER: Final = 64
_MASK: Final = (1 << 64) - 1


def hashed(of: int, block: int) -> int:
    """32 bits, equal for all events of a stretch, on every node and for ever (splitmix64's mixing: Steele, Lea,
    Flood, "Fast splittable pseudorandom number generators", 2014)."""
    x = (of + (block + 1) * 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (x ^ (x >> 31)) >> 32
