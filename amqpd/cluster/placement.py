"""Which member is taken next for a source, or for what else has a name: an order by hash, and bounded loads.

What comes in: a name, members with their failure domains, who is full. What goes out: an order; the next one for a
set; a bound.
Rules: 1. A pure function of what comes in, in whichever order it comes: every forwarder that sees the same members
finds the same. 2. The copies of a source are in different failure domains as long as there are any; only then a
second one comes into a domain. 3. Few move when a member comes or goes: each source has its own order of all members,
by hash of the two names alone, and passes those that are full.
Not here: the sets of new sources (`choosing.py`), what is to change of those that there are (`moves.py`); weights of
members: all count the same.

After Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads" (arXiv 1608.01350), with an order of
its own for each source in the place of a circle (rendezvous hashing: Thaler, Ravishankar 1998), so that what a full
member overflows does not all go to one neighbour (Chen, Coleman and Shrivastava, arXiv 1908.08762).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from fractions import Fraction
from hashlib import blake2b
from math import ceil, floor

from amqpd.cluster.records import MemberRecord

# How far a member may be above its share. Less is more even, and moves more sources at each change; with a quarter,
# 256 sources and a handful of members hardly any source meets a full one.
SLACK = Fraction(1, 4)
# How far a node may be above its share and is left alone: each copy that moves is sent over the network.
EVEN_SLACK = Fraction(1, 10)


def ranked(source: int | str, names: Iterable[str]) -> list[str]:
    """In the order in which the source, or what else has this name, would have them. A name that comes or goes leaves
    the others' order alone."""
    return sorted(names, key=lambda name: (_hash(source, name), name))


def next_member(
    source: int,
    members: Iterable[str],
    others: Iterable[str],
    living: Mapping[str, MemberRecord],
    full: Container[str],
) -> str:
    """Which of the others comes into the set of these members: one that lives, does not fail together with one that
    is in it, is in another region, is not `full`; of those that are equally good, the first by hash."""
    used = [living[name] for name in members if name in living]

    def cost(name: str) -> tuple[bool, bool, bool, bool]:
        member = living.get(name)
        if member is None:
            return True, False, False, name in full
        together = any(member.domain == each.domain for each in used)
        near = bool(member.region) and any(member.region == each.region for each in used)
        return False, together, near, name in full

    return min(ranked(source, others), key=cost)


def bound_of(total: int, among: int, slack: Fraction = SLACK) -> int:
    """How many each of this number may have at most, of this total."""
    return ceil((1 + slack) * Fraction(total, max(among, 1)))


def even_bound(total: int, among: int, slack: Fraction) -> int:
    """How many each of this number may have, of this total, before one is moved to another."""
    share = Fraction(total, max(among, 1))
    return max(ceil(share), floor((1 + slack) * share))


def _hash(source: int | str, name: str) -> bytes:
    return blake2b(f"{source}/{name}".encode(), digest_size=8).digest()
