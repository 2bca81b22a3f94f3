"""How often a peer is dialed: pauses that double up to a bound, and begin again when there is reason to.

Not verified: sockets (`test_links.py`).
"""

from __future__ import annotations

import itertools
import socket

import pytest
import trio

from amqpd.peers.links import dialing
from amqpd.peers.links.dialing import Dialer
from amqpd.peers.links.framing import Crc
from amqpd.peers.links.handshake import Proven
from amqpd.peers.links.link import LinkLimits
from amqpd.peers.links.stream import NotListening
from amqpd.peers.links.troubles import CHANGED, Trouble
from amqpd.peers.versions import HIGHEST
from tests.peers.links.forwarders import OPEN, Heard, hello

pytestmark = pytest.mark.trio

LIMITS = LinkLimits(back_off_first_s=1.0, back_off_max_s=10.0)
HERE, THERE = ("here", 1), ("there", 1)


class Attempts:
    """Stands in for `connect`: nobody is there."""

    def __init__(self) -> None:
        self.at_s: list[float] = []
        self.begun_s = trio.current_time()

    async def connect(self, address: object, *, loopback_only: bool) -> None:
        await trio.lowlevel.checkpoint()
        self.at_s.append(trio.current_time() - self.begun_s)
        raise NotListening("Connection refused")


def dialer(chance: float) -> Dialer:
    return Dialer("b", HERE, hello("a"), Heard(), OPEN, LIMITS, lambda: chance)


@pytest.fixture
async def attempts(monkeypatch: pytest.MonkeyPatch) -> Attempts:
    made = Attempts()
    monkeypatch.setattr(dialing, "connect", made.connect)
    return made


@pytest.mark.parametrize(("chance", "share"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
async def test_pauses_double_up_to_a_bound(
    attempts: Attempts, nursery: trio.Nursery, autojump_clock: object, chance: float, share: float
) -> None:
    nursery.start_soon(dialer(chance).run)
    await trio.sleep(60)
    pauses = [later - earlier for earlier, later in zip(attempts.at_s, attempts.at_s[1:], strict=False)]
    assert pauses[:6] == pytest.approx([share * each for each in (1, 2, 4, 8, 10, 10)])


async def test_a_peer_that_has_dialed_is_dialed_soon(
    attempts: Attempts, nursery: trio.Nursery, autojump_clock: object
) -> None:
    made = dialer(1.0)
    nursery.start_soon(made.run)
    await trio.sleep(30)
    made.heard_of(hello("b"))
    before = len(attempts.at_s)
    await trio.sleep(0.9)
    assert len(attempts.at_s) == before
    await trio.sleep(0.2)
    assert len(attempts.at_s) == before + 1


async def test_a_peer_that_moved_is_dialed_at_once(
    attempts: Attempts, nursery: trio.Nursery, autojump_clock: object
) -> None:
    made = dialer(1.0)
    nursery.start_soon(made.run)
    await trio.sleep(30)
    before = len(attempts.at_s)
    made.move(HERE)
    await trio.sleep(0.1)
    assert len(attempts.at_s) == before
    made.move(THERE)
    await trio.sleep(0.1)
    assert len(attempts.at_s) == before + 1


class Linked:
    """A link that ends after a time."""

    def __init__(self, heard: bool, lasts_s: float, incarnation: int, changed: bool = False) -> None:
        self.heard = heard
        self.peer, self.version = hello("b", incarnation), HIGHEST
        self.changed = changed
        self._lasts_s = lasts_s

    async def run(self, begun: object) -> str:
        await trio.sleep(self._lasts_s)
        return "it ended"


HELD_S = LIMITS.back_off_max_s


@pytest.mark.parametrize(
    ("heard", "lasts_s", "restarts", "pauses"),
    [
        (True, HELD_S, False, [1, 1, 1, 1, 1]),
        (True, 0, False, [1, 2, 4, 8, 10]),
        # A process that ended is dialed at once, however short it lived.
        (True, 0, True, [1, 1, 1, 1, 1]),
        (False, HELD_S, False, [1, 2, 4, 8, 10]),
        (False, 0, False, [1, 2, 4, 8, 10]),
    ],
)
async def test_a_link_that_held_and_over_which_something_came_is_dialed_again_soon(
    monkeypatch: pytest.MonkeyPatch,
    nursery: trio.Nursery,
    autojump_clock: object,
    heard: bool,
    lasts_s: float,
    restarts: bool,
    pauses: list[int],
) -> None:
    made, at_s = dialer(1.0), []

    async def dial(address: object) -> Linked:
        at_s.append(trio.current_time())
        return Linked(heard, lasts_s, len(at_s) if restarts else 1)

    monkeypatch.setattr(made, "_dial", dial)
    nursery.start_soon(made.run)
    await trio.sleep(120)
    found = [later - earlier - lasts_s for earlier, later in itertools.pairwise(at_s)]
    assert found[:5] == pytest.approx(pauses)


@pytest.mark.parametrize(("incarnation", "soon"), [(1, False), (2, True)])
async def test_two_whose_links_break_at_once_do_not_call_each_other_up(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, autojump_clock: object, incarnation: int, soon: bool
) -> None:
    """Bits flip between them, and each is dialed by the other one in its own pauses. A newer process is dialed at
    once."""
    made, at_s = dialer(1.0), []

    async def dial(address: object) -> Linked:
        at_s.append(trio.current_time())
        return Linked(True, 0, 1, changed=True)

    monkeypatch.setattr(made, "_dial", dial)
    nursery.start_soon(made.run)
    await trio.sleep(30)
    before = len(at_s)
    made.heard_of(hello("b", incarnation))
    await trio.sleep(1.1)
    assert (len(at_s) > before) == soon
    assert made.trouble == Trouble(CHANGED, "bytes change on the way")


async def test_a_peer_that_moves_as_it_answers_is_let_go(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    heard, mine = Heard(), socket.socketpair()
    made = Dialer("b", HERE, hello("a"), heard, OPEN, LIMITS, lambda: 1.0)

    async def connect(address: object, *, loopback_only: bool) -> socket.socket:
        return mine[0]

    async def answer(*_: object) -> Proven:
        made.move(None)
        return Proven(hello("b"), Crc())

    monkeypatch.setattr(dialing, "connect", connect)
    monkeypatch.setattr(dialing, "dial_hello", answer)
    await made.run()
    assert heard.all == []
    assert mine[0].fileno() == -1
    mine[1].close()


async def test_what_is_no_peer_any_more_is_not_dialed(attempts: Attempts, autojump_clock: object) -> None:
    made = dialer(1.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await trio.sleep(30)
        made.move(None)
    before = len(attempts.at_s)
    await trio.sleep(100)
    assert len(attempts.at_s) == before
