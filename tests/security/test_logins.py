"""Log-ins: right, wrong, remembered, forgotten, and under a flood."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
import trio
import trio.testing

from amqpd.process.services import address_of
from amqpd.security.authentication import logins as logins_module
from amqpd.security.authentication.logins import (
    PASSWORD_BYTES_MAX,
    Accepted,
    FairSemaphore,
    LoginRefused,
    Logins,
    TooManyWaiting,
)
from amqpd.security.authentication.passwords import hash_password, verify_password
from amqpd.security.rabbitmq_hashes import stored_hash
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Delete, Put, UserRecord

pytestmark = pytest.mark.trio


class CountedHashes:
    """Stands for argon2: a hash is "hash of " + password. Counts, and can be held up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.verified: Counter[str] = Counter()
        self.order: list[str] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.at_once = self.at_once_max = 0
        self._lock = threading.Lock()
        monkeypatch.setattr(logins_module, "verify_password", self.verify)
        monkeypatch.setattr(logins_module, "hash_password", lambda password: "hash of nothing")

    def verify(self, stored: str, password: bytes) -> bool:
        with self._lock:
            self.verified[stored] += 1
            self.order.append(stored)
            self.at_once += 1
            self.at_once_max = max(self.at_once_max, self.at_once)
        assert self.go_on.wait(120)
        with self._lock:
            self.at_once -= 1
        return stored == "hash of " + password.decode()


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> CountedHashes:
    return CountedHashes(monkeypatch)


def topology_of(*users: str) -> Topology:
    topology = Topology()
    topology.apply([Put(UserRecord(user, f"hash of {user}!", tags=("t",))) for user in users])
    return topology


async def test_a_real_hash() -> None:
    topology = Topology()
    stored = hash_password(b"secret")
    topology.apply([Put(UserRecord("u", stored))])
    logins = Logins(topology)
    assert stored.startswith("$argon2id$")
    assert await logins.verify("u", b"secret", True) == Accepted("u", ())
    assert await logins.verify("u", b"Secret", True) == LoginRefused("user 'u' - invalid credentials")
    assert await logins.verify("other", b"secret", True) == LoginRefused("user 'other' - invalid credentials")
    assert not verify_password("", b"")
    assert not verify_password("no hash", b"no hash")


async def test_a_log_in_is_remembered_until_the_user_changes(hashes: CountedHashes) -> None:
    topology = topology_of("u")
    logins = Logins(topology)
    for _ in range(5):
        assert await logins.verify("u", b"u!", True) == Accepted("u", ("t",))
    assert hashes.verified["hash of u!"] == 1
    assert isinstance(await logins.verify("u", b"wrong", True), LoginRefused)
    assert isinstance(await logins.verify("u", b"u!", True), Accepted)
    assert hashes.verified["hash of u!"] == 2
    topology.apply([Put(UserRecord("u", "hash of u!", tags=("new",)))])
    assert await logins.verify("u", b"u!", True) == Accepted("u", ("new",))
    topology.apply([Put(UserRecord("u", "hash of other"))])
    assert isinstance(await logins.verify("u", b"u!", True), LoginRefused)
    assert isinstance(await logins.verify("u", b"other", True), Accepted)
    topology.apply([Delete(("user", "u"))])
    assert isinstance(await logins.verify("u", b"other", True), LoginRefused)


async def test_what_is_remembered_is_bounded(hashes: CountedHashes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins_module, "REMEMBERED_MAX", 2)
    logins = Logins(topology_of("a", "b", "c"))
    for user in ("a", "b", "a", "c", "a", "b"):
        assert isinstance(await logins.verify(user, f"{user}!".encode(), True), Accepted)
    assert hashes.verified == {"hash of a!": 1, "hash of b!": 2, "hash of c!": 1}


async def test_blank_and_endless_passwords_cost_nothing(hashes: CountedHashes) -> None:
    logins = Logins(topology_of("u"))
    refused = await logins.verify("u", b"", True)
    assert refused == LoginRefused("user 'u' attempted to log in with a blank password")
    assert isinstance(await logins.verify("u", b"x" * (PASSWORD_BYTES_MAX + 1), True), LoginRefused)
    assert not hashes.verified


async def test_unknown_users_and_users_without_a_password_cost_as_much(hashes: CountedHashes) -> None:
    topology = topology_of("u")
    topology.apply([Put(UserRecord("certificate only", ""))])
    logins = Logins(topology)
    for user in ("u", "nobody", "certificate only"):
        assert isinstance(await logins.verify(user, b"nothing", True), LoginRefused)
    assert hashes.verified == {"hash of u!": 1, "hash of nothing": 2}


async def test_users_from_rabbitmq_log_in_and_their_quick_hashes_cost_as_much(hashes: CountedHashes) -> None:
    from_rabbitmq = stored_hash("rabbit_password_hashing_sha256", "1F1YL4Q4EVjd3klskFoktOzWqo4qA0IyJYeHmXgYoP1NP+l9")
    topology = Topology()
    topology.apply([Put(UserRecord("old", from_rabbitmq))])
    logins = Logins(topology)
    assert isinstance(await logins.verify("old", b"wrong", True), LoginRefused)
    assert hashes.verified == {from_rabbitmq: 1, "hash of nothing": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logins_module, "verify_password", verify_password)
        assert await logins.verify("old", b"secret", True) == Accepted("old", ())
    assert topology.users["old"].password_hash == from_rabbitmq


async def test_guest_comes_from_here_only(hashes: CountedHashes) -> None:
    logins = Logins(topology_of("guest", "u"))
    assert isinstance(await logins.verify("guest", b"guest!", True), Accepted)
    assert await logins.verify("guest", b"guest!", False) == LoginRefused(
        "user 'guest' can only connect via localhost"
    )
    assert isinstance(await logins.verify("u", b"u!", False), Accepted)
    assert isinstance(await Logins(topology_of("guest"), []).verify("guest", b"guest!", False), Accepted)


async def test_certificates(hashes: CountedHashes) -> None:
    logins = Logins(topology_of("guest", "u"))
    assert logins.verify_certificate("u", False) == Accepted("u", ("t",))
    assert logins.verify_certificate("guest", True) == Accepted("guest", ("t",))
    assert isinstance(logins.verify_certificate("guest", False), LoginRefused)
    assert isinstance(logins.verify_certificate("nobody", True), LoginRefused)
    assert not hashes.verified


async def test_the_same_log_in_a_hundred_times_at_once_costs_one_hash(hashes: CountedHashes) -> None:
    logins = Logins(topology_of("u"))
    hashes.go_on.clear()
    answers: list[object] = []

    async def log_in() -> None:
        answers.append(await logins.verify("u", b"u!", True))

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(log_in)
        await trio.testing.wait_all_tasks_blocked()
        hashes.go_on.set()
    assert answers == [Accepted("u", ("t",))] * 100
    assert hashes.verified["hash of u!"] == 1


async def test_who_shares_a_log_in_survives_the_other_s_cancellation(hashes: CountedHashes) -> None:
    logins = Logins(topology_of("u"))
    hashes.go_on.clear()
    answers: list[object] = []

    async def log_in() -> None:
        answers.append(await logins.verify("u", b"u!", True))

    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as first:
            # Both places are taken, so that the first one waits for its turn.
            for password in (b"x", b"y"):
                nursery.start_soon(logins.verify, "u", password, True)
            await trio.testing.wait_all_tasks_blocked()
            first.start_soon(logins.verify, "u", b"u!", True)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(log_in)
            await trio.testing.wait_all_tasks_blocked()
            first.cancel_scope.cancel()
        hashes.go_on.set()
    assert answers == [Accepted("u", ("t",))]


async def test_a_flood_stalls_neither_others_nor_the_machine(
    hashes: CountedHashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins_module, "WAITING_AN_ADDRESS_MAX", 20)
    # One, so that threads cannot overtake each other.
    monkeypatch.setattr(logins_module, "VERIFICATIONS_AT_ONCE", 1)
    logins = Logins(topology_of("victim", "known", "other"))
    assert isinstance(await logins.verify("known", b"known!", True), Accepted)
    hashes.go_on.clear()
    reasons: Counter[str] = Counter()
    done: list[str] = []

    async def flood(user: str, number: int) -> None:
        refused = await logins.verify(user, b"wrong %d" % number, True, "a" if user == "victim" else "b")
        assert isinstance(refused, LoginRefused)
        reasons[refused.reason.split(" - ")[1]] += 1
        done.append("flood")

    async def other() -> None:
        assert isinstance(await logins.verify("other", b"other!", True, "c"), Accepted)
        done.append("other")

    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(flood, "victim", number)
            nursery.start_soon(flood, f"made up {number}", number)
        await trio.testing.wait_all_tasks_blocked()
        # Remembered: not touched by the flood at all.
        assert isinstance(await logins.verify("known", b"known!", True), Accepted)
        nursery.start_soon(other)
        await trio.testing.wait_all_tasks_blocked()
        refused_at_once = len(done)
        hashes.go_on.set()
    # One runs, twenty from each of the two addresses wait, the rest were refused at once.
    assert refused_at_once == 200 - 1 - 40
    assert reasons == {"too many log-ins are waiting": 159, "invalid credentials": 41}
    # "known" was before the flood, one more ran when "other" came; then three addresses take turns.
    assert hashes.order.index("hash of other!") <= 4
    assert hashes.at_once_max == 1


@pytest.mark.parametrize("known_first", [True, False])
async def test_under_load_an_unknown_user_waits_as_long_as_a_known_one(
    hashes: CountedHashes, monkeypatch: pytest.MonkeyPatch, known_first: bool
) -> None:
    """Counted in log-ins that come before it, with others under way for both sorts of names, at the same address."""
    monkeypatch.setattr(logins_module, "VERIFICATIONS_AT_ONCE", 1)
    names = [f"known {number}" for number in range(5)] + ["probed"]
    logins = Logins(topology_of(*names))
    hashes.go_on.clear()
    answered: list[str] = []

    async def log_in(user: str, number: int) -> None:
        assert isinstance(await logins.verify(user, b"wrong %d" % number, True, "a"), LoginRefused)
        answered.append(user)

    async with trio.open_nursery() as nursery:
        for number in range(3):
            for user in (*names[:5], *(f"unknown {each}" for each in range(5))):
                nursery.start_soon(log_in, user, number)
                await trio.testing.wait_all_tasks_blocked()
        for user in ("probed", "made up") if known_first else ("made up", "probed"):
            nursery.start_soon(log_in, user, 0)
            await trio.testing.wait_all_tasks_blocked()
        hashes.go_on.set()
    assert abs(answered.index("probed") - answered.index("made up")) == 1
    assert (answered.index("probed") < answered.index("made up")) == known_first


async def test_the_first_log_in_costs_the_same_whoever_it_is(
    hashes: CountedHashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bytes] = []
    monkeypatch.setattr(logins_module, "hash_password", lambda password: made.append(password) or "hash of nothing")
    for user in ("u", "unknown"):
        made.clear()
        hashes.verified.clear()
        assert isinstance(await Logins(topology_of("u")).verify(user, b"wrong", True), LoginRefused)
        assert (len(made), hashes.verified.total()) == (1, 1)


async def test_turns_go_round_among_names() -> None:
    turns = FairSemaphore(1, 10)
    order: list[str] = []

    async def work(name: str) -> None:
        async with turns.take(name):
            order.append(name)

    async with trio.open_nursery() as nursery, turns.take("holder"):
        for name in "aaabbc":
            nursery.start_soon(work, name)
            await trio.testing.wait_all_tasks_blocked()
    assert "".join(order) == "abcaba"


async def test_turns_go_round_among_addresses_whatever_names_they_use() -> None:
    turns = FairSemaphore(1, 10)
    order: list[str] = []

    async def work(name: str, address: str) -> None:
        async with turns.take(name, address):
            order.append(address + name)

    async with trio.open_nursery() as nursery, turns.take("holder"):
        for each in ("1a", "1b", "1c", "1a", "2z", "3z"):
            nursery.start_soon(work, each[1], each[0])
            await trio.testing.wait_all_tasks_blocked()
    assert order == ["1a", "2z", "3z", "1b", "1c", "1a"]


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("192.0.2.7:4711 -> 192.0.2.1:5672", "192.0.2.7"),
        ("[2001:db8:1:2:3:4:5:6]:4711 -> [::1]:5672", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2:ffff::1]:4712 -> [::1]:5672", "2001:db8:1:2::/64"),
        ("[::ffff:192.0.2.7]:4711 -> [::1]:5672", "::ffff:192.0.2.7"),
        ("test", ""),
    ],
)
async def test_who_shares_an_address(name: str, address: str) -> None:
    assert address_of(name) == address


async def test_a_turn_is_not_lost_by_cancellation() -> None:
    turns = FairSemaphore(1, 2)
    async with trio.open_nursery() as nursery:

        async def work() -> None:
            async with turns.take("a"):
                raise AssertionError("cancelled before its turn")

        async with turns.take("holder"):
            nursery.start_soon(work)
            nursery.start_soon(work)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(TooManyWaiting):
                async with turns.take("a"):
                    raise AssertionError("there was no space")
            nursery.cancel_scope.cancel()
        # The turn was handed to one that is being cancelled.
    with trio.fail_after(60):
        async with turns.take("b"):
            pass
