"""What a node says of its links: nothing at a start, nothing of those that come and go, soon what stays refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from amqpd.cluster.linkage import BACK_S, LOST_LEASES, REASON_MAX, REFUSED_S, LinkWatch
from amqpd.cluster.records import MEMBERS_MAX
from amqpd.peers.links.troubles import CERTIFICATE, CHANGED, REFUSED, SECRET, UNREACHED, Trouble

LEASE_S = 2.0
LOST_S = LOST_LEASES * LEASE_S
BEAT_S = 0.1
DIFFERS = Trouble(SECRET, "the shared secret differs")
ALTERED = Trouble(CHANGED, "bytes change on the way")


class Watched:
    """The watch of a, with a clock."""

    def __init__(self, living: Iterable[str] = "abc") -> None:
        self.watch = LinkWatch("a", LEASE_S)
        self.living = list(living)
        self.now_s = 50.0
        self.puts: list[str] = []
        """each word that is another one than before"""

    def for_s(self, seconds: float, linked: Iterable[str], troubles: Mapping[str, Trouble] | None = None) -> str:
        """Names that are missing at the end."""
        found = ""
        for _ in range(max(1, round(seconds / BEAT_S))):
            self.now_s += BEAT_S
            said = self.watch.look(self.living, list(linked), troubles or {}, self.now_s)
            found = "".join(each.peer for each in said)
            if not self.puts or self.puts[-1] != found:
                self.puts.append(found)
        return found


def test_a_start_says_nothing_while_links_are_made() -> None:
    watched = Watched()
    assert watched.for_s(LOST_S - 2 * BEAT_S, "") == ""
    assert watched.for_s(60, "bc") == ""
    assert watched.puts == [""]


@pytest.mark.parametrize("trouble", [None, Trouble(UNREACHED, "timed out"), Trouble(REFUSED, "no node 'a'")])
def test_what_may_pass_by_itself_is_missing_when_its_lease_would_have_run_out(trouble: Trouble | None) -> None:
    """A node that starts is in no roster for a moment, and is refused for that."""
    watched = Watched()
    troubles = {"c": trouble} if trouble is not None else {}
    watched.for_s(10, "bc")
    assert watched.for_s(LOST_S - BEAT_S, "b", troubles) == ""
    assert watched.for_s(3 * BEAT_S, "b", troubles) == "c"


@pytest.mark.parametrize("kind", [SECRET, CERTIFICATE])
def test_what_no_time_changes_is_missing_soon(kind: str) -> None:
    watched = Watched()
    assert watched.for_s(REFUSED_S - BEAT_S, "b", {"c": Trouble(kind, "no")}) == ""
    assert watched.for_s(3 * BEAT_S, "b", {"c": Trouble(kind, "no")}) == "c"


def test_a_member_whose_lease_runs_out_is_nobody_to_speak_of() -> None:
    watched = Watched()
    watched.for_s(LEASE_S, "b")
    watched.living.remove("c")
    assert watched.for_s(60, "b") == ""
    watched.living.append("c")
    assert watched.for_s(LEASE_S, "b") == "", "it came back, and is given its time again"
    assert watched.puts == [""]


def test_a_link_that_comes_and_goes_is_missing_and_is_said_once() -> None:
    watched = Watched()
    watched.for_s(LOST_S + 1, "b")
    for _ in range(50):
        watched.for_s(BACK_S / 2, "bc")
        watched.for_s(BACK_S / 2, "b")
    assert watched.puts == ["", "c"]
    assert watched.for_s(BACK_S + 2 * BEAT_S, "bc") == ""


def test_a_link_that_never_lasts_is_missing() -> None:
    """Bits flip on the way: it is there in many a moment, and in none for long."""
    watched = Watched()
    watched.for_s(10, "bc")
    for _ in range(round(LOST_S / 0.4) + 1):
        watched.for_s(0.2, "b", {"c": ALTERED})
        watched.for_s(0.2, "bc")
    assert watched.puts == ["", "c"]
    for kind in (UNREACHED, CHANGED) * 3:
        [said] = watched.watch.look("abc", "b", {"c": Trouble(kind, "so")}, watched.now_s)
        assert (said.kind, said.reason) == ALTERED, "some attempts end in another way"
    assert watched.for_s(BACK_S + 2 * BEAT_S, "bc") == ""


def test_a_link_that_is_lost_for_a_moment_again_and_again_is_there() -> None:
    watched = Watched()
    for _ in range(20):
        watched.for_s(LOST_S / 2, "b")
        watched.for_s(LOST_S / 2, "bc")
    assert watched.puts == [""]


def test_the_reason_stays_while_its_kind_does() -> None:
    """An attempt to dial may end in several ways, one after the other: each would be a put in the store."""
    watched = Watched()
    for reason in ("timed out", "reset by peer") * 30:
        watched.for_s(0.2, "b", {"c": Trouble(UNREACHED, reason)})
    [said] = watched.watch.look("abc", "b", {"c": Trouble(UNREACHED, "reset by peer")}, watched.now_s)
    assert said.reason in ("timed out", "reset by peer")
    [again] = watched.watch.look("abc", "b", {"c": Trouble(UNREACHED, "something else")}, watched.now_s)
    assert again == said
    [other] = watched.watch.look("abc", "b", {"c": DIFFERS}, watched.now_s)
    assert (other.kind, other.reason) == DIFFERS


def test_it_is_bounded() -> None:
    watched = Watched(["a", *(f"n{number}" for number in range(200))])
    troubles = {name: Trouble(SECRET, "x" * 10_000) for name in watched.living}
    watched.for_s(5, "", troubles)
    said = watched.watch.look(watched.living, [], troubles, watched.now_s)
    assert len(said) == MEMBERS_MAX
    assert all(len(each.reason) == REASON_MAX for each in said)
