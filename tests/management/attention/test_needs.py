"""Sentences about what needs attention: their order, their words, their pages; bounded whatever is told."""

from __future__ import annotations

import pytest

from amqpd.management.attention.alarms import NodeAlarm
from amqpd.management.attention.directories import NodeDirectory
from amqpd.management.attention.facts import (
    BLOCKED,
    BROKEN,
    CUT_OFF,
    DAMAGED,
    DEAD_LETTERS,
    EACH_MAX,
    JOURNAL,
    MORE,
    NO_CONSUMERS,
    PREFETCH,
    REFUSING,
    UNROUTABLE,
    Fact,
)
from amqpd.management.attention.needs import ORDER, ClusterFacts, GatheredFacts, needs

ALARM: NodeAlarm = {
    "node": "a@x", "name": "maintenance", "source": "operator", "since": "", "since_ms": 7, "says": "an operator has",
    "blocked": 2, "clearable": True,
}  # fmt: skip
WELL = ClusterFacts((), 0, 0, 0, 0, ())


def said(*facts: Fact, clustered: bool = False) -> list[tuple[str, str]]:
    return [
        (need["says"], need["link"])
        for need in needs(GatheredFacts(clustered, [], [("a@x", fact) for fact in facts]))
    ]


SENTENCES = [
    (
        Fact(DAMAGED, "/", "orders", {"first": 10, "last": 10, "messages": 1}),
        "queue 'orders' stops at message 10, which is damaged on the disk: nothing behind is delivered until that is "
        "set aside (amqpd message quarantine)",
        "#/queues/%2F/orders",
    ),
    (
        Fact(BROKEN, "/", "odd", {}),
        "queue 'odd' is out of service until a restart: a bug was met in it, which the log has",
        "#/queues/%2F/odd",
    ),
    (
        Fact(NO_CONSUMERS, "/", "orders", {"ready": 1204, "oldest_s": 900}),
        "1,204 messages wait in queue 'orders', the oldest for 15 min: nobody consumes",
        "#/queues/%2F/orders",
    ),
    (
        Fact(NO_CONSUMERS, "shop", "a b/c", {"ready": 1}),
        "1 message waits in queue 'a b/c' in virtual host 'shop': nobody consumes",
        "#/queues/shop/a%20b%2Fc",
    ),
    (
        Fact(PREFETCH, "/", "mail", {"ready": 20, "consumers": 1, "unacked": 10, "idle_s": 300}),
        "20 messages wait in queue 'mail': its only consumer has 10 unacknowledged, all that the prefetch allows, "
        "and nothing was acknowledged for 5 min",
        "#/queues/%2F/mail",
    ),
    (
        Fact(REFUSING, "/", "small", {"refused": 512, "last_s": 12, "max_length": 10}),
        "queue 'small' is full (at most 10 messages) and refused 512 publishes in the last 10 min (last 12 s ago): "
        "nobody consumes",
        "#/queues/%2F/small",
    ),
    (
        Fact(DEAD_LETTERS, "/", "dlq", {"came": 12, "last_s": 1, "ready": 37, "consumers": 0}),
        "12 dead letters came to queue 'dlq' in the last 10 min (last 1.0 s ago), and 37 messages wait there: nobody "
        "consumes",
        "#/queues/%2F/dlq",
    ),
    (
        Fact(UNROUTABLE, "/", "", {"dropped": 3, "returned": 1, "nacked": 0, "last_s": 60}),
        "4 messages to the default exchange reached no queue in the last 10 min (last 60 s ago): 3 dropped, 1 "
        "returned",
        "#/exchanges/%2F/amq.default",
    ),
    (
        Fact(BLOCKED, "", "", {"connections": 7}),
        "7 connections are blocked: what they publish waits",
        "#/connections?sort=state",
    ),
    (
        Fact(JOURNAL, "", "disk", {"seconds": 15}),
        "publishers wait for the disk, which had as much to write as may wait for it at each look of the last 15 s",
        "#/connections?sort=state",
    ),
    (
        Fact(CUT_OFF, "", "", {"sources": 3}),
        "node a@x is cut off: it leads, or gave up, 3 sources of which no majority of the copies answers, and "
        "clients of these queues wait",
        "#/cluster",
    ),
]


@pytest.mark.parametrize(("fact", "sentence", "link"), SENTENCES, ids=[fact.kind for fact, _, _ in SENTENCES])
def test_each_is_one_sentence_with_the_page_where_somebody_acts(fact: Fact, sentence: str, link: str) -> None:
    assert said(fact) == [(sentence, link)]


def test_nothing_is_said_where_all_is_well() -> None:
    assert needs(GatheredFacts(True, [], [], WELL)) == []


def test_alarms_come_first_then_what_stops_then_the_rest_in_their_order() -> None:
    cluster = ClusterFacts(
        *(["c@x"], 2, 40, 1, 3, ["b@x", "d@x", "e@x"]),
        why_silent={"b@x": "there is no link to it now: timed out", "e@x": ""},
        isolated={"d@x": "a@x and b@x refuse d@x: the shared secret differs; mend it"},
        unreadable=["the metadata's record cluster/source/7 cannot be read: source 7 is stopped"],
        store_silent=True,
        classic={"c@x": 2, "b@x": 5, "": 1},
        forgotten={"f@x": ("node f@x was taken out, and is refused", 9)},
    )
    told = [("a@x", fact) for fact, _, _ in reversed(SENTENCES)]
    found = needs(GatheredFacts(True, [ALARM], told, cluster, [directory("repair", "it failed")]))
    kinds = [need["kind"] for need in found]
    assert kinds == sorted(kinds, key=ORDER.index)
    assert kinds[:6] == ["alarm", "stopped", "cut_off", "store_silent", "unreadable", "isolated"]
    assert {need["severity"] for need in found[:6]} == {"bad"}
    assert set(kinds) == set(ORDER) - {"store_replaced"}  # a store that answers is not silent
    by_kind = {need["kind"]: need for need in found}
    alarm = by_kind["alarm"]
    assert (alarm["severity"], alarm["since_ms"], alarm["clearable"]) == ("bad", 7, True)
    assert alarm["says"] == "the maintenance alarm is on at node a@x: an operator has"
    assert by_kind["stopped"]["says"] == "40 quorum queues stop: 2 sources have no majority of the copies"
    assert [need["says"] for need in found if need["kind"] == "away"] == [
        "node c@x is away, and 2 classic queues with it",
        "1 classic queue has no node yet, and no client can use it: it gets one when all nodes have been started, or "
        "were forgotten",
    ]
    assert by_kind["fewer_copies"]["says"] == "1 source with 3 quorum queues has fewer copies than wanted"
    silent = [need["says"] for need in found if need["kind"] == "silent"]
    assert silent == [
        "node b@x does not answer (there is no link to it now: timed out): what its queues need is not known",
        "node e@x does not answer: what its queues need is not known",
    ], "of one that is isolated it is said why already"
    assert by_kind["isolated"]["says"] == (
        "node d@x lives and takes no part: a@x and b@x refuse d@x: the shared secret differs; mend it"
    )
    assert by_kind["isolated"]["subject"]["node"] == "d@x"
    assert by_kind["unreadable"]["says"].endswith("source 7 is stopped")
    assert by_kind["store_silent"]["says"].startswith("the metadata store (etcd) does not answer this node")
    assert by_kind["cut_off"]["subject"]["node"] == "a@x"
    assert by_kind["blocked"]["says"] == "7 connections are blocked at node a@x: what they publish waits"
    forgotten = by_kind["forgotten"]
    assert (forgotten["says"], forgotten["since_ms"]) == ("node f@x was taken out, and is refused", 9)
    assert (forgotten["subject"]["node"], forgotten["link"]) == ("f@x", "#/cluster")


def directory(state: str, reason: str = "", unrepaired: str = "", path: str = "/b/amqpd") -> NodeDirectory:
    return NodeDirectory("a@x", path, state, reason, unrepaired, 2, 3)


@pytest.mark.parametrize(
    ("given", "severity", "sentence"),
    [
        (
            directory("behind", "it failed"),
            "bad",
            "is left behind (it failed): 2 of 3 have everything; bring its disk back, or put an empty one there, and "
            "it is made equal to the others by itself (docs/disks.md)",
        ),
        (
            directory("behind", "it failed", "Input/output error"),
            "bad",
            "is left behind (it failed), and could not be made equal to the others: Input/output error; 2 of 3 have "
            "everything; it is tried again by itself (docs/disks.md)",
        ),
        (
            directory("repair", "it is new, or was emptied"),
            "warn",
            "is made equal to the others (it is new, or was emptied): until then 2 of 3 have everything",
        ),
        (
            directory("behind", "the data directory /b/amqpd is gone: it was removed", "it hangs"),
            "bad",
            "is left behind (it is gone: it was removed), and could not be made equal to the others: it hangs; 2 of "
            "3 have everything; it is tried again by itself (docs/disks.md)",
        ),
        (directory("full"), "warn", "is full, and is left behind if that lasts: make space on its disk"),
        (
            directory("slow", "it did not answer for 10 s"),
            "warn",
            "does not answer (it did not answer for 10 s), and counts with what it has: look at its disk",
        ),
        (
            directory("left out"),
            "warn",
            "was taken out of the configuration and is not kept up: name it again, or empty it, so that nobody takes "
            "it for the data of this node",
        ),
    ],
)
def test_a_data_directory_that_is_not_in_use_is_said_with_what_to_do(
    given: NodeDirectory, severity: str, sentence: str
) -> None:
    [alone] = needs(GatheredFacts(False, [], [], None, [given]))
    assert alone["says"] == f"data directory /b/amqpd {sentence}"
    assert (alone["kind"], alone["severity"], alone["link"]) == ("data_directory", severity, "#/log?level=warning")
    assert alone["subject"] == {"node": "a@x", "vhost": "", "name": "/b/amqpd"}
    [clustered] = needs(GatheredFacts(True, [], [], WELL, [given]))
    assert clustered["says"] == f"data directory /b/amqpd of node a@x {sentence}"
    assert clustered["link"] == "#/cluster"


def test_who_may_not_see_why_is_told_that_publishers_wait() -> None:
    [need] = needs(GatheredFacts(False, [{**ALARM, "says": ""}], []))
    assert need["says"] == "the maintenance alarm is on: publishers wait"


def test_of_all_nodes_together_those_that_matter_most_are_told() -> None:
    facts = [
        (node, Fact(NO_CONSUMERS, "/", f"{node}{count}", {"ready": count}))
        for node in ("a@x", "b@x")
        for count in range(10, 10 + EACH_MAX)
    ]
    facts += [("a@x", Fact(MORE, "", NO_CONSUMERS, {"count": 100})), ("b@x", Fact(MORE, "", "unheard", {"count": 1}))]
    *first, rest = needs(GatheredFacts(True, [], facts))
    assert [need["subject"]["name"] for need in first] == ["a@x14", "b@x14", "a@x13", "b@x13", "a@x12"]
    assert rest["says"] == "105 more queues have messages and nobody who consumes"
    assert rest["link"] == "#/queues?sort=messages&desc=1"


def test_what_several_nodes_tell_of_one_exchange_is_added_up() -> None:
    numbers = {"dropped": 1, "returned": 0, "nacked": 0, "last_s": 9}
    told = [(node, Fact(UNROUTABLE, "/", "shop", {**numbers, "last_s": at})) for at, node in enumerate("abc", 3)]
    [need] = needs(GatheredFacts(True, [], told))
    assert "3 messages to exchange 'shop' reached no queue in the last 10 min (last 3.0 s ago)" in need["says"]


def test_it_is_bounded_whatever_is_told() -> None:
    many = 1_000
    facts = [("a@x", Fact(kind, "/", f"q{at}", {"ready": at})) for at in range(many) for kind in ORDER[5:11]]
    names = [f"n{at}" for at in range(many)]
    apart = {f"i{at}": "why" for at in range(many)}
    asking = {f"f{at}": ("asks", at) for at in range(many)}
    cluster = ClusterFacts(names, 1, 1, 1, 1, names, isolated=apart, unreadable=names, forgotten=asking)
    directories = [directory("full", path=f"/full{at}") for at in range(many)]
    found = needs(GatheredFacts(True, [ALARM] * many, facts, cluster, [*directories, directory("behind")]))
    assert len(found) < 120
    assert next(need for need in found if need["kind"] == "data_directory")["subject"]["name"] == "/b/amqpd"


def test_names_that_are_no_text_have_an_address() -> None:
    [(_, link)] = said(Fact(NO_CONSUMERS, "/", "a\udcff", {"ready": 1}))
    assert link == "#/queues/%2F/a%FF"


def test_a_store_that_was_replaced_is_said_to_be_that() -> None:
    found = needs(GatheredFacts(True, [], [], WELL._replace(store_replaced="the store was emptied; put it back")))
    assert [(need["severity"], need["kind"], need["says"]) for need in found] == [
        ("bad", "store_replaced", "the store was emptied; put it back; publishing and consuming go on")
    ]
