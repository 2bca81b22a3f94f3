"""`amqpd quorum` and `amqpd cluster forget`: what they say, what they ask for, what they refuse; no node runs.

What is verified: against a real etcd, whose records a test writes. Not verified here: that the leaders do what is
asked for (`tests/faults/test_cluster_operators.py`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import trio
from click.testing import CliRunner, Result

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

from amqpd.cluster.records import (
    PREFIX,
    DesiredSetRecord,
    KnownRecord,
    LinksRecord,
    MemberRecord,
    MissingLink,
    encode,
    key_of,
)
from amqpd.cluster.roster import Roster
from amqpd.commands import cluster_store
from amqpd.commands.cluster import cluster
from amqpd.commands.quorum import quorum
from amqpd.config import Settings
from amqpd.management.control import socket as control
from amqpd.peers.entry import Vote
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.codec import decode_record, encode_key, encode_record
from amqpd.topology.metadata.store import DeleteKey, PutKey
from amqpd.vocabulary.records import QueueRecord
from tests.harness.etcd import EtcdProcess
from tests.harness.slow import slow
from tests.topology.etcd_stores import etcd_stores, new_prefix
from tests.topology.etcd_stores import shared_etcd as shared_etcd

QUORUM = {"x-queue-type": "quorum"}


class Store:
    """A cluster's, with the nodes that live and those that are known. A name has `@x` in the records."""

    def __init__(self, endpoint: str, directory: Path) -> None:
        self._endpoint, self._prefix = endpoint, new_prefix()
        self._directory = directory
        self._refused: dict[str, list[MissingLink]] = {}
        """by who says so"""
        self.settings = Settings(cluster_store=f"etcd://{endpoint}/{self._prefix.removesuffix('/')}")

    def nodes(self, living: str, known: str = "") -> None:
        records = [MemberRecord(f"{name}@x", 1, ord(name), "::1", 5673) for name in living]
        everybody = [KnownRecord(f"{name}@x", 1, ord(name)) for name in {*living, *known}]
        self.put(*[PutKey(key_of(each), encode(each)) for each in records])
        self.put(*[PutKey(key_of(each), encode(each)) for each in everybody])

    def sources(self, *said: str) -> None:
        """As in `"abc"`: of these, the first is the leader."""
        for number, text in enumerate(said, 1):
            members = sorted(text)
            record = SourceRecord(
                number, Vote(4, f"{text[0]}@x", 1), tuple(f"{name}@x" for name in members), tuple(map(ord, members))
            )
            self.put(PutKey(key_of(record), encode(record)))

    def queue(self, name: str, source: int, **arguments: Any) -> None:
        record = QueueRecord("/", name, source, durable=True, arguments={**QUORUM, **arguments}, source=source)
        self.put(PutKey(encode_key(record.key), encode_record(record)))

    def refuse(self, name: str, *by: str) -> None:
        """These say that they do."""
        for each in by:
            self._refused.setdefault(each, []).append(MissingLink(f"{name}@x", "secret", "the shared secret differs"))
        records = [LinksRecord(f"{each}@x", 1, tuple(missing)) for each, missing in self._refused.items()]
        self.put(*[PutKey(key_of(each), encode(each)) for each in records])

    def desired_set(self, desired_set: DesiredSetRecord) -> None:
        self.put(PutKey(key_of(desired_set), encode(desired_set)))

    def gone(self, name: str) -> None:
        self.put(DeleteKey(f"{PREFIX}member/{name}@x"))

    def come_back(self, monkeypatch: pytest.MonkeyPatch, names: str) -> list[str]:
        """These have leases again when a command has looked for the first time: what it said then. It waits for them
        for a minute at most."""
        said: list[str] = []

        def progress(sentence: str) -> None:
            if not said:
                # In a thread: the command's own loop runs in this one.
                putting = threading.Thread(target=self.nodes, args=(names,))
                putting.start()
                putting.join()
            said.append(sentence)

        monkeypatch.setattr(cluster_store, "progress", progress)
        monkeypatch.setattr(cluster_store, "RENEWED_LEASES", 30.0)
        return said

    def put(self, *operations: PutKey | DeleteKey) -> None:
        async def fill() -> None:
            async with etcd_stores(self._endpoint, self._prefix) as open_one:
                await (await open_one()).transact([], list(operations))

        trio.run(fill)

    @property
    def roster(self) -> Roster:
        found = Roster()

        async def read() -> None:
            async with etcd_stores(self._endpoint, self._prefix) as open_one:
                found.load(await (await open_one()).range(PREFIX))

        trio.run(read)
        return found

    @property
    def desired_sets(self) -> dict[int, tuple[str, str]]:
        """Members and leader, by their short names."""
        return {
            source: ("".join(name[0] for name in desired_set.members), desired_set.leader[:1])
            for source, desired_set in self.roster.desired_sets.items()
        }

    def queue_sources(self, vhost: str) -> dict[str, int]:
        """Of each queue there."""
        return {name: record.source for name, record in self.queues(vhost).items()}

    def queues(self, vhost: str) -> dict[str, QueueRecord]:
        found: dict[str, QueueRecord] = {}

        async def read() -> None:
            async with etcd_stores(self._endpoint, self._prefix) as open_one:
                for entry in (await (await open_one()).range("topology/queue/")).entries:
                    record = decode_record(entry.key, entry.value)
                    if isinstance(record, QueueRecord) and record.vhost == vhost:
                        found[record.name] = record

        trio.run(read)
        return found

    def run(self, *words: str, group: click.Group = quorum) -> Result:
        reads = words[0] in ("status", "force") and group is quorum
        where = ["--data-dir", str(self._directory)] if reads else []
        return CliRunner().invoke(group, [words[0], *where, *words[1:]], obj=self.settings)

    def ok(self, *words: str, group: click.Group = quorum) -> str:
        result = self.run(*words, group=group)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    def refused(self, *words: str, group: click.Group = quorum, code: int = 1) -> str:
        """The sentence, which is the last line."""
        result = self.run(*words, group=group)
        assert result.exit_code == code, (result.output, result.exception)
        return result.stderr.strip().split("\n")[-1].removeprefix("Error: ")


@pytest.fixture(autouse=True)
def _nobody_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has no lease is not waited for as long as nodes need to renew theirs."""
    monkeypatch.setattr(cluster_store, "RENEWED_LEASES", 0.01)


@pytest.fixture
def store(shared_etcd: EtcdProcess, tmp_path: Path) -> Store:
    return Store(shared_etcd.endpoint, tmp_path)


@pytest.fixture
def abc(store: Store) -> Store:
    """Three nodes, and a source led by each; `orders` and `bills` are in the first."""
    store.nodes("abc")
    store.sources("abc", "bca", "cab")
    store.queue("orders", 1)
    store.queue("bills", 1)
    store.queue("mail", 2)
    return store


def facts(node: str, *rows: dict[str, Any]) -> dict[str, Any]:
    return {"node": f"{node}@x", "sources": list(rows), "copies": []}


# Leases that ran out while etcd was silent


@pytest.mark.parametrize(
    ("words", "group"), [(("status",), quorum), (("status", "orders"), quorum), (("status",), cluster)]
)
def test_nodes_that_renew_their_leases_were_never_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch, words: Sequence[str], group: click.Group
) -> None:
    store.nodes("", "abc")
    store.sources("abc")
    store.queue("orders", 1)
    said = store.come_back(monkeypatch, "abc")
    shown = store.ok(*words, group=group)
    assert "gone" not in shown
    assert "majority" not in shown
    assert said == ["etcd has no lease of a@x, b@x, c@x: looking for 60 s whether they renew it"]


def test_a_majority_that_renews_its_leases_is_not_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.nodes("a", "bc")
    store.sources("abc")
    store.come_back(monkeypatch, "bc")
    assert store.refused("force", "--all-without-majority", "--yes").startswith("nothing is to be forced")
    assert store.roster.records[1].members == ("a@x", "b@x", "c@x")


def test_one_node_that_renews_its_lease_after_a_silence_of_etcd_was_never_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.nodes("ab", "c")
    store.sources("abc")
    monkeypatch.setattr(cluster_store, "SILENT_S", 0.0)
    store.come_back(monkeypatch, "c")
    assert "gone" not in store.ok("status")


# A node that the others refuse


def test_nothing_is_moved_to_a_node_that_the_others_refuse_and_the_reason_is_said(store: Store) -> None:
    store.nodes("abcd")
    store.sources("abc", "abc", "abc", "bca")
    store.queue("orders", 1)
    store.refuse("c", "a", "b")
    store.refuse("d", "a", "b")
    why = "a@x and b@x refuse c@x: the shared secret differs"
    for words in (["grow", "c", "--all"], ["transfer", "orders", "c"]):
        assert why in store.refused(*words)
    assert "d@x is isolated" in store.refused("grow", "d", "--source", "1")
    result = store.run("rebalance", "--no-wait")
    assert result.exit_code == 0
    assert f"left out, without links: {why}" in result.stderr
    assert store.desired_sets, "b leads less than a"
    assert {(members, leader) for members, leader in store.desired_sets.values()} == {("", "b")}
    said = store.ok("status", "orders")
    assert f": leader a@x; 2 of 3 copies have links; {why}\n" in said
    assert store.run("status", "--problems").exit_code == 1


def test_a_majority_is_not_given_up_for_nodes_that_live_without_links(abc: Store) -> None:
    abc.refuse("a", "b", "c")
    abc.refuse("b", "a", "c")
    assert abc.run("status", "orders").stdout.count("stopped") == 1
    assert abc.refused("force", "--all-without-majority", "--yes") == (
        "nothing is to be forced: every source has a majority of its copies on nodes that live; these have no links "
        "(a@x, b@x, c@x): `amqpd cluster status` says why"
    )
    assert "isolated: a@x, b@x, c@x" in abc.ok("status", group=cluster)


def test_a_node_that_the_others_refuse_can_be_taken_out(store: Store) -> None:
    store.nodes("abcd")
    store.sources("abc")
    store.refuse("c", "a", "b", "d")
    assert "source 1: to be on a@x, b@x, d@x with leader a@x" in store.ok("forget", "c", "--dry-run", group=cluster)


# status


def test_where_queues_are(abc: Store) -> None:
    assert abc.ok("status") == (
        "source  queues  leader  copies       state\n"
        "1       2       a@x     a@x b@x c@x  leader a@x; 3 copies\n"
        "2       1       b@x     a@x b@x c@x  leader b@x; 3 copies\n"
        "3       0       c@x     a@x b@x c@x  leader c@x; 3 copies\n"
        "\n"
        "how far copies are the leader knows, and no node of the cluster runs on this data directory: ask on a@x, "
        "b@x, c@x\n"
    )


def test_sources_of_which_the_same_is_said_are_one_line(store: Store) -> None:
    store.nodes("ab", "c")
    store.sources("abc", "abc", "bca", "abc")
    lines = store.ok("status").split("\n")
    assert lines[1] == "1-2 4   0       a@x     a@x b@x c@x  leader a@x; 3 copies; c@x is gone"
    assert lines[2].startswith("3 ")


def test_the_leader_says_how_far_copies_are(abc: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = {"b@x": {"is": "counts", "lacks_bytes": 0}, "c@x": {"is": "behind", "lacks_bytes": 4 << 20}}
    row = {"source": 1, "epoch": 4, "serving": True, "copies": copies}
    monkeypatch.setattr(control, "call", lambda *_: facts("a", row))
    assert abc.ok("status", "orders") == (
        "queue orders is in source 1, with 1 other queue: leader a@x; 2 of 3 copies up to date, node c@x is 4.0 MB "
        "behind\n"
    )
    assert abc.ok("status").rstrip().endswith("the leader knows, and this is a@x: ask on b@x, c@x")


def test_problems_are_an_exit_code(abc: Store) -> None:
    assert abc.run("status", "--problems").output == ""
    abc.gone("c")
    result = abc.run("status", "--problems")
    assert result.exit_code == 1
    assert "leader c@x is gone: another node is about to take it over" in result.stdout


def test_what_is_asked_for_and_not_done_is_said(abc: Store) -> None:
    abc.desired_set(DesiredSetRecord(1, ("a@x", "b@x", "d@x"), "", "d@x does not live"))
    said = abc.ok("status", "--source", "1")
    assert "leader a@x; 3 copies; is to be on a@x, b@x, d@x, and waits: d@x does not live" in said


def test_a_queue_that_asked_for_one_copy_has_enough(store: Store) -> None:
    store.nodes("abc")
    store.sources("a", "b")
    store.queue("alone", 1, **{"x-quorum-initial-group-size": 1})
    store.queue("other", 2)
    said = store.ok("status")
    assert "leader a@x; 1 copy\n" in said
    assert "leader b@x; 1 copy; under-replicated: 1 of 3 copies" in said
    assert store.run("grow", "c", "--all", "--no-wait").exit_code == 0
    assert store.desired_sets == {2: ("bc", "")}


def test_status_for_programs(abc: Store) -> None:
    [row] = json.loads(abc.ok("status", "mail", "--json"))
    assert (row["source"], row["leader"], row["members"]) == (2, "b@x", ["a@x", "b@x", "c@x"])
    assert (row["queues"], row["majority"], row["well"], row["up_to_date"]) == (1, True, True, None)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["status", "none"], "there is no queue 'none' in virtual host '/'"),
        slow(["status", "--source", "9"], "there is no source 9"),
        slow(["transfer", "none", "b"], "there is no queue 'none' in virtual host '/'"),
        slow(["transfer", "classic", "b"], "the queue 'classic' is no quorum queue of the cluster: it has no copies"),
        slow(
            ["transfer", "orders", "z"],
            "z is no node of this cluster: `amqpd cluster status` says which there are",
        ),
        slow(["grow", "d", "--source", "1"], "d@x does not live: `amqpd cluster status` says which nodes do"),
        slow(["grow", "b", "--source", "1"], "b@x has a copy of source 1 already"),
        slow(["shrink", "d", "--source", "1"], "d@x has no copy of source 1"),
        slow(["force", "orders"], "nothing is to be forced: source 1 has a majority of its copies"),
        (["force", "--all-without-majority"], "nothing is to be forced: every source has a majority of its copies"),
    ],
)
def test_what_cannot_be_is_one_sentence(abc: Store, words: Sequence[str], sentence: str) -> None:
    abc.nodes("", "d")
    abc.queue("classic", 0)
    assert abc.refused(*words) == sentence
    assert abc.desired_sets == {}


@pytest.mark.parametrize("words", [slow(["grow", "b"]), slow(["shrink", "b", "--all", "--source", "1"]), ["force"]])
def test_what_is_meant_has_to_be_said_once(abc: Store, words: Sequence[str]) -> None:
    assert abc.refused(*words, code=2).startswith("say which")


def test_a_short_name_is_enough_if_there_is_one_such_node(abc: Store) -> None:
    other = MemberRecord("a@y", 1, 5, "::1", 5673)
    known = KnownRecord("a@y", 1, 5)
    abc.put(PutKey(key_of(other), encode(other)), PutKey(key_of(known), encode(known)))
    assert abc.refused("transfer", "mail", "a") == "a is one of a@x, a@y: write the whole name"
    abc.ok("transfer", "mail", "a@x", "--no-wait")
    abc.ok("transfer", "orders", "b", "--no-wait")
    assert abc.desired_sets == {2: ("", "a"), 1: ("", "b")}


# What is asked for


def test_a_leader_is_transferred_with_all_queues_of_its_source(abc: Store) -> None:
    result = abc.run("transfer", "orders", "c", "--no-wait")
    assert result.stderr.startswith("1 other queue of source 1 moves with it\n")
    assert abc.desired_sets == {1: ("", "c")}
    assert abc.ok("transfer", "orders", "c", "--no-wait") == "c@x is the leader of queue 'orders' already\n"


def test_a_node_without_a_copy_cannot_be_the_leader(abc: Store) -> None:
    abc.nodes("d")
    assert abc.refused("transfer", "orders", "d") == (
        "d@x keeps no copy of queue 'orders', these do: a@x, b@x, c@x; grow it first: "
        "amqpd quorum grow d@x --source 1"
    )


def test_sets_are_grown_and_shrunk(abc: Store) -> None:
    abc.nodes("d")
    result = abc.run("grow", "d", "--queue", "orders", "--no-wait")
    assert "source 1: 4 copies survive the loss of 1, as 3 do" in result.stderr
    assert abc.ok("grow", "d", "--all", "--no-wait") == "every source has its copies already\n"
    # On top of what is asked for already.
    abc.ok("shrink", "a", "--source", "1", "--no-wait")
    assert abc.desired_sets[1][0] == "bcd"
    result = abc.run("shrink", "c", "--all", "--no-wait")
    assert "source 2: will have 2 copies and should have 3" in result.stderr
    assert {source: members for source, (members, _) in abc.desired_sets.items()} == {1: "bd", 2: "ab", 3: "ab"}


def test_what_was_asked_for_is_taken_back(abc: Store) -> None:
    abc.ok("transfer", "orders", "c", "--no-wait")
    abc.ok("transfer", "mail", "c", "--no-wait")
    assert abc.ok("cancel", "--queue", "mail") == "1 taken back\n"
    assert abc.ok("cancel", "--all") == "1 taken back\n"
    assert abc.ok("cancel", "--all") == "nothing was asked for, or it is done\n"
    assert abc.desired_sets == {}


def test_a_wait_has_an_end(abc: Store) -> None:
    sentence = abc.refused("transfer", "orders", "c", "--timeout", "0.2")
    assert sentence.startswith("not done within 0.2 seconds; what was asked for goes on")
    assert abc.desired_sets == {1: ("", "c")}


# rebalance


def test_a_rebalance_says_what_it_would_move(store: Store) -> None:
    store.nodes("abc")
    store.sources("abc", "abc", "cab")
    said = store.ok("rebalance", "--dry-run").split("\n")
    assert len(said) == 3
    assert said[0].endswith(": leader from a@x to b@x")
    assert said[1] == "1 of 3 sources would change; nothing was asked for"
    assert store.desired_sets == {}
    store.ok("rebalance", "--no-wait")
    assert list(store.desired_sets.values()) == [("", "b")]
    # What is asked for counts as if it were so.
    assert store.ok("rebalance", "--no-wait") == "all nodes have their share: nothing moves\n"


def test_a_new_node_gets_copies(store: Store) -> None:
    store.nodes("abcd")
    store.sources("abc", "bca", "cab", "abc")
    said = store.ok("rebalance", "--dry-run")
    assert said.count("copy from") == 3
    assert said.count("to d@x") >= 3
    leaders = store.ok("rebalance", "--leaders", "--dry-run")
    assert "copy" not in leaders


# forget


def test_a_node_that_is_gone_is_replaced_before_it_is_forgotten(store: Store) -> None:
    store.nodes("abd", "c")
    store.sources("abc", "bca", "abd")
    assert store.ok("forget", "c", "--dry-run", group=cluster) == (
        "source 1: to be on a@x, b@x, d@x with leader a@x\n"
        "source 2: to be on a@x, b@x, d@x with leader b@x\n"
        "c@x would be taken out of 2 sources; nothing was asked for\n"
    )
    assert store.desired_sets == {}
    sentence = store.refused("forget", "c", "--timeout", "0.2", group=cluster)
    assert sentence.startswith("c@x is not forgotten within 0.2 seconds")
    assert store.desired_sets == {1: ("abd", ""), 2: ("abd", "")}
    assert "c@x" in store.roster.known


def test_a_node_that_keeps_nothing_is_forgotten(store: Store) -> None:
    store.nodes("ab", "c")
    store.sources("ab")
    assert store.ok("forget", "c", group=cluster) == "c@x is forgotten\n"
    assert "c@x" not in store.roster.known
    assert store.refused("forget", "c", group=cluster).startswith("c is no node of this cluster")


def test_a_node_that_was_forgotten_is_let_in_again(store: Store) -> None:
    store.nodes("ab", "c")
    assert store.refused("readmit", "c", group=cluster) == "no node c was forgotten"
    store.ok("forget", "c", group=cluster)
    assert store.roster.forgotten["c@x"].generations == (ord("c"),)
    assert store.ok("readmit", "c", group=cluster) == "c@x may start again\n"
    assert store.roster.forgotten == {}


def test_a_node_that_runs_is_waited_for(store: Store) -> None:
    store.nodes("abc")
    store.sources("ab")
    result = store.run("forget", "c", "--timeout", "0.5", group=cluster)
    assert result.exit_code == 1
    assert "nothing is kept on c@x any more: end its process now; waiting until it has" in result.stderr


def test_with_too_few_nodes_none_is_forgotten(store: Store) -> None:
    store.nodes("ab", "c")
    store.sources("abc")
    assert store.refused("forget", "c", group=cluster) == (
        "source 1 is on a@x, b@x, c@x, and no other node lives that could take the place of c@x: start one "
        "more node first"
    )
    assert store.desired_sets == {}


# force


def test_what_may_be_lost_is_said_before_it_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.nodes("a", "bc")
    store.sources("bca")
    store.queue("orders", 1)
    copies = [{"source": 1, "last": [4, 120], "committed": [4, 118]}]
    monkeypatch.setattr(control, "call", lambda *_: {"node": "a@x", "sources": [], "copies": copies})
    result = store.run("force", "orders")
    assert result.exit_code == 1
    assert result.stdout == (
        "source 1: stopped: b@x and c@x are gone, so 1 of 3 copies are no majority\n"
        "  lost: b@x, c@x; left: a@x; last leader: b@x, epoch 4\n"
        "  the copy of a@x ends at entry 120 of epoch 4 (known to be committed: 118): what was confirmed after that "
        "may be lost\n"
    )
    assert result.stderr == (
        "etcd has no lease of b@x, c@x: looking for 0.02 s whether they renew it\n"
        "Error: nothing was done: be sure that b@x, c@x do not run, then --yes lets 1 source go on with what is "
        "left\n"
    )
    assert store.roster.records[1].members == ("a@x", "b@x", "c@x")


def test_a_leader_that_is_left_has_all_that_it_confirmed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.nodes("a", "bc")
    store.sources("abc")
    copies = [{"source": 1, "last": [4, 120], "committed": [4, 118]}]
    row = {"source": 1, "epoch": 4, "serving": True, "copies": {}}
    monkeypatch.setattr(control, "call", lambda *_: {"node": "a@x", "sources": [row], "copies": copies})
    assert (
        "its leader a@x is left, and has all that it confirmed: nothing is lost"
        in store.run("force", "--all-without-majority").stdout
    )
    row["epoch"] = 3  # it held its leader lease before, and is about to take over again
    assert "may be lost" in store.run("force", "--all-without-majority").stdout


def test_what_is_left_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amqpd.commands.quorum.SERVED_S", 0.2)
    store.nodes("ad", "bc")
    store.sources("bca", "adc", "bc")
    result = store.run("force", "--all-without-majority", "--yes")
    assert result.exit_code == 1  # nobody runs who would take it over
    assert "1 source may go on, and not all of them have a leader after 0.2 seconds" in result.stderr
    found = store.roster.records
    assert (found[1].members, found[1].leader) == (("a@x",), Vote(4, "", 0))
    # One has a majority, of the other nothing is left.
    assert found[2].members == ("a@x", "c@x", "d@x")
    assert found[3].members == ("b@x", "c@x")


def test_where_nothing_is_left_nothing_is_forced(store: Store) -> None:
    store.nodes("a", "bc")
    store.sources("bc")
    assert store.refused("force", "--all-without-majority", "--yes") == (
        "no node that has a copy lives: start one of them first"
    )
