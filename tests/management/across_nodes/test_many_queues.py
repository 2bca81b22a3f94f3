"""Many queues at once, and lists of queues of all nodes: what is meant, what is done, what is told.

Not verified here: the questions between nodes (`test_rows.py`), real nodes
(`tests/clients/test_cluster_management.py`).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import trio

from amqpd.management.across_nodes import led_queues, many_queues
from amqpd.management.across_nodes.leaders import Leaders
from amqpd.management.across_nodes.many_queues import Act, Meant
from amqpd.management.across_nodes.rows import PeerRows
from amqpd.management.errors import BadArgument, NotFound
from amqpd.vocabulary.records import Put, QueueRecord
from tests.harness.harness import publish_bytes
from tests.management.rig import ALICE, ROOT, rows_of, running

B, SILENT = "b@x", "c@x"


class Cluster:
    """Another node that leads source 5, with 7 messages in each queue, and one that leads source 6 and is silent of
    it."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def ask(self, peer: str, text: str, timeout_s: float) -> str | None:
        question = json.loads(text)
        self.asked.append(question)
        if peer == SILENT:
            return None
        answers: dict[str, list[dict[str, Any]]] = {
            "queues": [
                {"vhost": vhost, "name": name, "state": "running", "messages": 7, "messages_ready": 7}
                for vhost, name in question.get("names", ())
            ],
            "purge": [{"messages": 7}],
            "delete": [{"messages": 0}],
            "why": [{"why": ["as its leader says"]}],
        }
        return json.dumps({"rows": answers.get(question["of"], []), "next": None})

    def others(self) -> list[str]:
        return [B, SILENT]

    def lives(self, name: str) -> bool:
        return True

    def is_isolated(self, name: str) -> bool:
        return False

    def leader_of_source(self, source: int) -> str:
        return {5: B, 6: SILENT}.get(source, "")

    def members_of(self, source: int) -> tuple[str, ...]:
        return ("amqpd", B, SILENT)


class Scene:
    """Queues of this node: `full` with two messages, `empty`, `used` with a consumer; of others, of this kind: `far`,
    `silent`."""

    def __init__(self, kind: str) -> None:
        self.harness, self.on = running()
        client = self.harness.client()
        for name in ("full", "empty", "used"):
            client.declare(name, durable=True)
        client.raw(publish_bytes(b"x", "full") * 2)
        client.consume("used", "tag")
        self.cluster = Cluster()
        for name, source in (("far", 5), ("silent", 6)):
            record = QueueRecord("/", name, source << 8, arguments={"x-queue-type": kind})
            if kind == "quorum":
                self.harness._apply([Put(replace(record, source=source))])
            else:
                self.harness._apply([Put(replace(record, node=self.cluster.leader_of_source(source)))])
        peers, sources = PeerRows(self.cluster, self.cluster.others), self.on.node.sources
        self.harness.cluster.leaders, self.harness.cluster.members = self.cluster.leader_of_source, self.cluster.lives
        self.leaders = Leaders("amqpd", sources, self.cluster, peers)  # type: ignore[arg-type]

    def done(self, act: Act, meant: Meant, dry_run: bool = False, by: Any = ROOT) -> dict[str, Any]:
        """Messages by queue, or why it was refused."""
        rows = rows_of(many_queues.carry_out(self.on, self.leaders, by, act, meant, dry_run=dry_run))
        return {row["name"]: row["refused"] or row["messages"] for row in rows}


@pytest.fixture(params=["quorum", "classic"])
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param)


def test_a_list_has_what_leaders_say_and_nothing_where_they_are_silent(scene: Scene) -> None:
    rows = {row["name"]: row for row in rows_of(led_queues.listed(scene.on, scene.leaders, {}))}
    assert {name: row["messages"] for name, row in rows.items()} == {
        "full": 2,
        "empty": 0,
        "used": 0,
        "far": 7,
        "silent": None,
    }
    assert (rows["far"]["node"], rows["far"]["state"]) == (B, "running")
    assert (rows["silent"]["node"], rows["silent"]["state"]) == (SILENT, "down")
    quorum = rows["silent"]["arguments"] == {"x-queue-type": "quorum"}
    assert [rows[name]["leader"] for name in ("far", "silent")] == ([B, SILENT] if quorum else ["", ""])
    assert rows["silent"]["message_stats"] is None


@pytest.mark.parametrize(
    ("meant", "found"),
    [
        (Meant(pattern="^f"), {"far": 7, "full": 2}),
        (Meant(pattern="l", conditions=["backlog"]), {"full": 2}),
        (Meant(conditions=["backlog"]), {"far": 7, "full": 2}),
        (Meant(conditions=["empty", "unused"]), {"empty": 0}),
        (Meant(conditions=["used"]), {"used": 0}),
        (Meant(vhost="/", pattern="nothing"), {}),
        (Meant(text="FUL"), {"full": 2}),
        (Meant(text="f.l"), {}),
        (Meant(vhost="/", text="", conditions=["empty"]), {"empty": 0, "used": 0}),
        (Meant(pattern="(?i)^FU.L$"), {"full": 2}),
        (Meant(names=[("/", "full"), ("/", "gone")]), {"full": 2, "gone": "it is not there any more"}),
    ],
)
def test_a_dry_run_says_which_and_does_nothing(scene: Scene, meant: Meant, found: dict[str, Any]) -> None:
    """What nobody knows is neither empty nor not."""
    assert scene.done("delete", meant, dry_run=True) == found
    assert scene.done("purge", meant, dry_run=True) == found
    assert len(scene.on.node.ports) == 5
    assert scene.on.queue("/", "full").ready_count == 2


def test_queues_are_purged_where_they_are_led(scene: Scene) -> None:
    assert scene.done("purge", Meant(pattern="f")) == {"far": 7, "full": 2}
    assert scene.on.queue("/", "full").ready_count == 0
    [purge] = [asked for asked in scene.cluster.asked if asked["of"] == "purge"]
    assert (purge["name"], purge["by"]) == ("far", None)


def test_one_that_refuses_is_told_and_the_others_go_on(scene: Scene) -> None:
    done = scene.done("purge", Meant(pattern="."))
    assert "node 'c@x' does not answer" in done.pop("silent")
    assert done == {"far": 7, "full": 2, "empty": 0, "used": 0}
    refused = scene.done("delete", Meant(names=[("/", "full"), ("/", "used")], conditions=["used"]))
    assert refused == {"full": "it has no consumers any more", "used": 0}
    assert scene.on.node.ports.get(("/", "used")) is None
    unknown = scene.done("purge", Meant(names=[("/", "silent")], conditions=["backlog"]))
    assert unknown == {"silent": "what it has is not known: a node does not answer"}


def test_a_user_s_permissions_count_for_each(scene: Scene) -> None:
    forbidden = scene.harness.node.access.forbidden  # type: ignore[attr-defined]
    forbidden.add(("configure", "full"))
    done = scene.done("delete", Meant(pattern="^(full|empty)$"), by=ALICE)
    assert done == {"full": "configure access to queue 'full' refused", "empty": 0}
    forbidden.add(("enter", "/"))
    assert scene.done("delete", Meant(pattern="."), by=ALICE) == {}, "she does not even see them"
    assert len(scene.on.node.ports) == 4


def test_too_many_are_refused_before_anything_is_done(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_queues, "QUEUES_MAX", 4)
    with pytest.raises(BadArgument, match="5 queues are meant, more than 4 at once"):
        scene.done("delete", Meant(pattern="."))
    assert len(scene.on.node.ports) == 5


@pytest.mark.parametrize(
    "arguments",
    [
        *({}, {"vhost": "/"}, {"matching": 1}, {"containing": 1}, {"only": ["odd"]}, {"only": "empty"}),
        *({"names": [["/"]]}, {"names": "x"}),
    ],
)
def test_who_does_not_say_which_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(BadArgument):
        Meant.of(arguments)


def test_mistakes(scene: Scene) -> None:
    with pytest.raises(BadArgument, match="no regular expression"):
        scene.done("purge", Meant(pattern="("))
    with pytest.raises(NotFound, match="virtual host 'no'"):
        scene.done("purge", Meant(vhost="no", pattern="."))


def test_why_is_what_the_leader_says(scene: Scene) -> None:
    async def why(named: bool) -> list[str]:
        return await led_queues.why(scene.on, scene.leaders, "/", "far", names_consumers=named)

    for named, told in ((True, "yes"), (False, "no")):
        assert trio.run(why, named) == ["as its leader says"]
        assert scene.cluster.asked[-1]["names_consumers"] == told


def test_deleting_says_how_many_went_if_somebody_knows(scene: Scene) -> None:
    async def delete(name: str) -> int | None:
        return await led_queues.delete(scene.on, scene.leaders, ROOT, "/", name, if_unused=False, if_empty=False)

    assert [trio.run(delete, name) for name in ("full", "far", "silent")] == [2, 7, None]


@pytest.mark.parametrize(("condition", "asked"), [("used", ("no", "no")), ("unused", ("yes", "no"))])
def test_the_leader_looks_at_conditions_when_it_deletes(
    scene: Scene, condition: str, asked: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_queues, "_holds", lambda *_: True)
    assert scene.done("delete", Meant(pattern="^far$", conditions=[condition])) == {
        "far": 7 if condition == "used" else 0
    }
    found = [(each["if_unused"], each["if_empty"]) for each in scene.cluster.asked if each["of"] == "delete"]
    assert found == ([] if condition == "used" else [asked])
