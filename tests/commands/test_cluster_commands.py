"""`amqpd cluster status`: what it says of the members and leaders that are in etcd."""

from __future__ import annotations

import json
from functools import partial

import pytest
import trio
from click.testing import CliRunner, Result

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

from amqpd.cluster.overview import ranges
from amqpd.cluster.records import KnownRecord, MemberRecord, encode, known_key, member_key, source_key
from amqpd.commands.cluster import cluster
from amqpd.config import Settings
from amqpd.peers.entry import Vote
from amqpd.process import cluster_store
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.codec import encode_key, encode_record
from amqpd.topology.metadata.etcd.store import EtcdStore
from amqpd.topology.metadata.store import DeleteKey, PutKey
from amqpd.vocabulary.records import QueueRecord
from amqpd.vocabulary.store_address import parse_store_address
from tests.harness.etcd import EtcdProcess, free_ports
from tests.topology.etcd_stores import etcd_stores, new_prefix
from tests.topology.etcd_stores import shared_etcd as shared_etcd

A = MemberRecord("a@x", 3, 11, "::1", 5673, "rack-1", "eu", "1.0")
KNOWN_A = encode(KnownRecord("a@x", 3, 11))
STATUS = """\
name  state  incarnation  version  label   region  address     leaders  copies
a@x   lives  3            1.0      rack-1  eu      [::1]:5673  3        4
b@x   gone   2                                                 1        3 (1 of another disk)
c@x   gone                                                     0        0 (1 of another disk)

leader  sources  numbers
a@x     3        1-2 9
b@x     1        7

1 node lives, gone: b@x.
b@x is gone: it has not renewed its lease; start it again, or take it out for good: amqpd cluster forget b@x.
4 sources (1-2 7 9) without a majority of their copies: stopped until a node is back, or given up: amqpd quorum force.
"""


def told(settings: Settings, *words: str) -> Result:
    return CliRunner().invoke(cluster, ["status", *words], obj=settings)


@pytest.fixture
def settings(shared_etcd: EtcdProcess) -> Settings:
    """Of a cluster in which a lives, b did, and c is named by one source alone."""
    prefix = new_prefix()

    async def fill() -> None:
        async with etcd_stores(shared_etcd.endpoint, prefix) as open_one:
            records = [
                SourceRecord(1, Vote(4, "a@x", 3), ("a@x", "b@x", "c@x"), (11, 22, 33)),
                SourceRecord(2, Vote(4, "a@x", 3), ("a@x", "b@x"), (11, 22)),
                SourceRecord(9, Vote(4, "a@x", 3), ("a@x", "b@x"), (11, 22)),
                SourceRecord(7, Vote(1, "b@x", 2), ("b@x", "a@x"), (21, 11)),
            ]
            puts = [PutKey(source_key(record.source), encode(record)) for record in records]
            puts.append(PutKey(member_key("a@x"), encode(A)))
            puts += [PutKey(known_key(each.name), encode(each)) for each in (KnownRecord("b@x", 2, 22),)]
            await (await open_one()).transact([], puts)

    trio.run(fill)
    return Settings(cluster_store=f"etcd://{shared_etcd.endpoint}/{prefix.removesuffix('/')}")


def test_members_and_leaders_at_a_glance(settings: Settings) -> None:
    result = told(settings)
    assert (result.exit_code, result.stdout) == (0, STATUS)


PROBLEMS = """\
b@x is gone: it has not renewed its lease; start it again, or take it out for good: amqpd cluster forget b@x.
4 sources (1-2 7 9) without a majority of their copies: stopped until a node is back, or given up: amqpd quorum force.
"""


def test_only_what_is_not_well_with_an_exit_code_for_scripts(settings: Settings) -> None:
    result = told(settings, "--problems")
    assert (result.exit_code, result.stdout) == (1, PROBLEMS)
    found = told(settings, "--problems", "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["problems"] == PROBLEMS.splitlines()
    assert told(settings, "--json").exit_code == 0


def test_where_no_node_has_a_lease_nobody_is_advised_to_forget_or_force(settings: Settings) -> None:
    async def end() -> None:
        access, name = (
            parse_store_address(settings.cluster_store).endpoints,
            settings.cluster_store.rpartition("/")[2],
        )
        async with etcd_stores(access[0], f"{name}/") as open_one:
            await (await open_one()).transact([], [DeleteKey(member_key("a@x")), PutKey(known_key("a@x"), KNOWN_A)])

    trio.run(end)
    said = told(settings).stdout.splitlines()[-3:]
    assert said[0] == "0 nodes live, gone: a@x, b@x."
    assert said[1].startswith("No node has a lease in etcd: none runs; or they run, and do not trust etcd any more")
    assert said[2] == "4 sources (1-2 7 9) without a majority of their copies: stopped until a node is back."


def test_where_all_is_well_there_is_nothing_to_say(shared_etcd: EtcdProcess) -> None:
    prefix = new_prefix()

    async def fill() -> None:
        async with etcd_stores(shared_etcd.endpoint, prefix) as open_one:
            await (await open_one()).transact(
                [],
                [
                    PutKey(member_key("a@x"), encode(A)),
                    PutKey(known_key("a@x"), encode(KnownRecord("a@x", A.incarnation, A.generation))),
                ],
            )

    trio.run(fill)
    result = told(Settings(cluster_store=f"etcd://{shared_etcd.endpoint}/{prefix.removesuffix('/')}"), "--problems")
    assert (result.exit_code, result.output) == (0, "")


def test_members_and_sources_for_programs(settings: Settings) -> None:
    found = json.loads(told(settings, "--json").stdout)
    assert [each["name"] for each in found["members"]] == ["a@x", "b@x", "c@x"]
    assert found["members"][0] == {
        "name": "a@x",
        "lives": True,
        "isolated": False,
        "missing_links": [],
        "incarnation": 3,
        "generation": 11,
        "version": "1.0",
        "label": "rack-1",
        "region": "eu",
        "host": "::1",
        "port": 5673,
        "leaders": 3,
        "copies": 4,
        "copies_of_another_disk": 0,
    }
    assert found["sources"][2] == {
        "source": 7,
        "leader": "b@x",
        "epoch": 1,
        "incarnation": 2,
        "members": ["b@x", "a@x"],
    }
    assert found["revision"] > 0


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("", "cluster_store is not set: there is no cluster to look at"),
        ("etcd://{endpoint}/none", "has no metadata store"),
    ],
)
def test_where_there_is_no_cluster_the_reason_is_said(shared_etcd: EtcdProcess, store: str, words: str) -> None:
    result = told(Settings(cluster_store=store.format(endpoint=shared_etcd.endpoint)))
    assert result.exit_code == 1
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_etcd_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_store, "EtcdStore", partial(EtcdStore, wait_s=0.2))
    result = told(Settings(cluster_store=f"etcd://127.0.0.1:{free_ports(1)[0]}"))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "the metadata store (etcd) does not answer: 127.0.0.1:" in result.stderr
    assert ": Connection refused; it was asked for 0.2 s: see that etcd runs" in result.stderr


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([1], "1"), ([1, 2], "1-2"), ([1, 3, 4, 5, 9], "1 3-5 9")])
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_what_waits_for_a_node_that_is_gone_is_said_and_what_becomes_of_it(
    settings: Settings, shared_etcd: EtcdProcess
) -> None:
    async def fill() -> None:
        prefix = f"{settings.cluster_store.rpartition('/')[2]}/"
        records = [QueueRecord("/", f"q{number}", number, node="b@x" if number < 3 else "") for number in (1, 2, 3)]
        async with etcd_stores(shared_etcd.endpoint, prefix) as open_one:
            puts = [PutKey(encode_key(record.key), encode_record(record)) for record in records]
            await (await open_one()).transact([], puts)

    trio.run(fill)
    said = told(settings, "--problems").stdout
    assert "b@x is gone (2 classic queues wait for it): it has not renewed its lease; start it again, or" in said
    assert "1 classic queue has no node yet: b@x may have messages of them, start or forget it.\n" in said
    forgetting = CliRunner().invoke(cluster, ["forget", "b", "--dry-run"], obj=settings).output
    assert "2 classic queues of b@x: to nodes that live, without messages, which only b@x has\n" in forgetting
