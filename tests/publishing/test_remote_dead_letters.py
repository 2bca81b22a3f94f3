"""What is due for a queue whose leader is another node, or none at present: it waits, and holds back nothing else.

What is verified: a quorum queue whose source goes and comes back; a classic queue that another node has, until this
one claims it; and of quorum queues, copies that are too far behind. Not verified: what settles across sources
(`tests/journal/test_withheld.py`), what clients are told (`tests/node/test_remote_queues.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pamqp import commands

from amqpd import KERNEL
from amqpd.node.node import Node
from amqpd.publishing import dead_lettering, routes
from amqpd.queues import delayed
from amqpd.queues.delayed import AWAY_LOOK_MS, AWAY_TOLD_MS
from amqpd.queues.expiry import RETRY_MS
from amqpd.vocabulary.records import Put
from tests.harness.harness import Client
from tests.node.test_source_moves import Scene, declared

DEATHS: dict[str, dict[str, Any]] = {
    "expired": {"x-message-ttl": 1000},
    "maxlen": {"x-max-length": 0},
    "rejected": {},
}


class ClassicScene(Scene):
    """Its queue is a classic one: it ends here when its record names another node, and begins when this one has
    claimed it."""

    arguments: dict[str, Any] = {}

    def __init__(self) -> None:
        super().__init__()
        self.node.sources.node = "a"

    def begin(self, *_: object) -> None:
        self._name("a")

    def end(self) -> None:
        self._name("b")

    def _name(self, node: str) -> None:
        queues = self.node.topology.vhosts["/"].queues
        if "q" in queues:
            change = Put(replace(queues["q"], node=node))
            self.node.topology.apply([change])
            self.node.applied([change])
            self.harness.step()


quorum_only = pytest.mark.parametrize("scene", [Scene], ids=["quorum"], indirect=True)
"""a classic queue has no copies"""


@pytest.fixture(params=[Scene, ClassicScene], ids=["quorum", "classic"])
def scene(request: pytest.FixtureRequest) -> Scene:
    made: Scene = request.param()
    return made


def pass_ms(scene: Scene, ms: int) -> None:
    scene.node.now_ms += ms
    scene.harness.step()


def told(scene: Scene, event: str) -> int:
    return sum(1 for name, _ in scene.harness.logged if name == event)


def bodies(client: Client, queue: str) -> list[bytes]:
    client.consume(queue, tag=queue, no_ack=True)
    found = [message.body for message in client.messages()]
    client.call(commands.Basic.Cancel(consumer_tag=queue), commands.Basic.CancelOk)
    return found


@pytest.mark.parametrize("heavy", [False, True])
def test_a_delayed_message_waits_for_a_queue_that_is_elsewhere(
    scene: Scene, heavy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if heavy:
        monkeypatch.setattr(routes, "LIGHT_MAX", -1)
    client = declared(scene)
    client.declare("here")
    client.publish(b"away", delivery_mode=2, headers={"x-delay": 500})
    client.publish(b"near", "here", headers={"x-delay": 600})
    scene.harness.step()
    scene.end()
    pass_ms(scene, 1000)
    assert bodies(client, "here") == [b"near"]
    assert told(scene, "delayed_messages_wait") == 1
    scene.begin()
    pass_ms(scene, AWAY_LOOK_MS)
    assert bodies(client, "q") == [b"away"]


def test_a_fanout_enters_all_of_its_queues_or_none(scene: Scene) -> None:
    client = declared(scene)
    client.declare("here")
    for queue in ("q", "here"):
        client.call(commands.Queue.Bind(0, queue, "amq.fanout"), commands.Queue.BindOk)
    client.publish(b"x", "", "amq.fanout", delivery_mode=2, headers={"x-delay": 500})
    scene.end()
    pass_ms(scene, 1000)
    assert bodies(client, "here") == []
    scene.begin()
    pass_ms(scene, AWAY_LOOK_MS)
    assert (bodies(client, "here"), bodies(client, "q")) == ([b"x"], [b"x"])


def test_of_many_that_wait_one_is_tried_at_a_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = [0]
    release = Node.release

    def counted(node: Node, *given: Any) -> Any:
        tried[0] += 1
        return release(node, *given)

    monkeypatch.setattr(Node, "release", counted)
    client = declared(scene)
    for number in range(300):
        client.publish(b"%d" % number, delivery_mode=2, headers={"x-delay": 500 + number % 7})
    scene.end()
    pass_ms(scene, 1000)
    for _ in range(20):
        scene.harness.step()
    tried[0] = 0
    for _ in range(10):
        pass_ms(scene, AWAY_LOOK_MS)
        for _ in range(5):
            scene.harness.step()
    assert 5 <= tried[0] <= 10
    assert told(scene, "delayed_messages_wait") == 1
    pass_ms(scene, AWAY_TOLD_MS)
    pass_ms(scene, AWAY_LOOK_MS)
    assert told(scene, "delayed_messages_wait") == 2
    scene.begin()
    pass_ms(scene, AWAY_LOOK_MS)
    for _ in range(20):
        scene.harness.step()
    assert sorted(map(int, bodies(client, "q"))) == list(range(300))


def test_what_waits_goes_when_nothing_leads_there_any_more(scene: Scene) -> None:
    client = declared(scene)
    client.declare("here")
    for queue in ("q", "here"):
        client.call(commands.Queue.Bind(0, queue, "amq.fanout"), commands.Queue.BindOk)
    client.publish(b"one", "", "amq.fanout", delivery_mode=2, headers={"x-delay": 500})
    client.publish(b"two", "", "amq.fanout", delivery_mode=2, headers={"x-delay": 600})
    scene.end()
    pass_ms(scene, 1000)
    client.call(commands.Queue.Unbind(0, "q", "amq.fanout"), commands.Queue.UnbindOk)
    pass_ms(scene, AWAY_LOOK_MS)
    assert sorted(bodies(client, "here")) == [b"one", b"two"]


@pytest.mark.parametrize("why", DEATHS)
@pytest.mark.parametrize("heavy", [False, True])
def test_a_dead_letter_waits_for_a_queue_that_is_elsewhere(
    scene: Scene, why: str, heavy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if heavy:
        monkeypatch.setattr(routes, "LIGHT_MAX", -1)
    client = declared(scene)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q", **DEATHS[why]}
    client.declare("dying", durable=True, arguments=arguments)
    scene.end()
    for number in range(3):
        client.publish(b"%d" % number, "dying", delivery_mode=2)
        if why == "rejected":
            client.send(commands.Basic.Get(queue="dying"))
            client.collect()
            (message,) = client.messages()
            client.send(commands.Basic.Reject(delivery_tag=message.tag, requeue=False))
    for _ in range(5):
        pass_ms(scene, 1000)
    dying = scene.node.queues["/", "dying"]
    assert (dying.ready_count, dying.unacked_count, dying.facts.dead_lettered) == (0, 3, 0)
    assert told(scene, "dead_letters_wait") == 1
    scene.begin()
    pass_ms(scene, RETRY_MS)
    assert bodies(client, "q") == [b"0", b"1", b"2"]
    assert dying.unacked_count == 0
    facts = dying.facts
    assert facts.accepted == 3 == facts.dead_lettered == facts.expired + facts.dropped + facts.rejected


def test_a_dead_letter_of_what_was_refused_waits_with_the_delayed_messages(scene: Scene) -> None:
    client = declared(scene)
    arguments = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "q",
        "x-overflow": "reject-publish-dlx",
        "x-max-length": 1,
    }
    client.declare("full", durable=True, arguments=arguments)
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.publish(b"in", "full", delivery_mode=1)
    client.expect(commands.Basic.Ack)
    scene.end()
    client.publish(b"refused", "full", delivery_mode=1)
    client.publish(b"too", "full", delivery_mode=1)
    assert {frame.delivery_tag for frame in client.take(commands.Basic.Nack)} == {2, 3}
    for _ in range(5):
        pass_ms(scene, 1000)
    assert told(scene, "dead_letter_lost") == 0
    scene.begin()
    pass_ms(scene, AWAY_LOOK_MS)
    client.consume("q", tag="c", no_ack=True)
    dead_letters = client.messages()
    assert [message.body for message in dead_letters] == [b"refused", b"too"]
    assert dead_letters[0].properties.headers["x-death"][0]["reason"] == "maxlen"


def test_a_dead_letter_that_chance_sends_elsewhere_waits_whatever_chance_says_next(scene: Scene) -> None:
    client = declared(scene)
    client.call(commands.Exchange.Declare(exchange="drawn", exchange_type="x-random"), commands.Exchange.DeclareOk)
    client.declare("here")
    for queue in ("q", "here"):
        client.call(commands.Queue.Bind(queue=queue, exchange="drawn", routing_key=""), commands.Queue.BindOk)
    full_queue(client, "drawn")
    scene.end()
    for number in range(20):
        client.publish(b"%d" % number, "full")
        pass_ms(scene, 1000)
    assert told(scene, "dead_letter_lost") == 0
    scene.begin()
    pass_ms(scene, AWAY_LOOK_MS)
    pass_ms(scene, AWAY_LOOK_MS)
    assert len(bodies(client, "q") + bodies(client, "here")) == 20


def full_queue(client: Client, exchange: str = "") -> None:
    arguments = {
        "x-dead-letter-exchange": exchange,
        "x-dead-letter-routing-key": "q",
        "x-overflow": "reject-publish-dlx",
        "x-max-length": 1,
    }
    client.declare("full", durable=True, arguments=arguments)
    client.publish(b"in", "full")


@pytest.mark.parametrize("bound", [{"DEAD_LETTERS_MAX": 3}, {"DEAD_LETTERS_BYTES_MAX": 2500}])
def test_dead_letters_of_what_was_refused_that_wait_are_bounded(
    scene: Scene, bound: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bound.items():
        monkeypatch.setattr(delayed, name, value)
    client = declared(scene)
    full_queue(client)
    scene.end()
    for number in range(20):
        client.publish(b"%d" % number + bytes(300), "full")
        pass_ms(scene, 100)
    assert told(scene, "dead_letter_lost") >= 1
    client.publish(b"of a client", delivery_mode=2, headers={"x-delay": 500})
    scene.begin()
    pass_ms(scene, 1000)
    pass_ms(scene, AWAY_LOOK_MS)
    came = sorted(body.rstrip(bytes(1)) for body in bodies(client, "q"))
    assert came == [b"0", b"1", b"2", b"of a client"]
    scene.end()
    client.publish(b"again", "full")
    scene.begin()
    pass_ms(scene, 1000)
    assert bodies(client, "q") == [b"again"], "those that have gone are not counted"


@pytest.mark.skipif(KERNEL != "python", reason="replaces a method of a compiled class")
def test_what_a_dead_letter_of_what_was_refused_takes_is_its_publishers_work(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = 1_000_000
    monkeypatch.setattr(dead_lettering, "DEAD_LETTER_WORK", work)
    client = declared(scene)
    full_queue(client)
    scene.end()
    charged: list[int] = []
    monkeypatch.setattr(scene.node.turns, "charge", lambda publisher, work: charged.append(work))
    client.publish(b"x", "full")
    assert max(charged) >= 2 * work, "it is made twice"


def test_a_dead_letter_that_waits_does_not_come_back_into_the_queue_that_refused_it(scene: Scene) -> None:
    client = declared(scene)
    full_queue(client, "amq.fanout")
    client.declare("here")
    for queue in ("q", "full", "here"):
        client.call(commands.Queue.Bind(0, queue, "amq.fanout"), commands.Queue.BindOk)
    scene.end()
    client.publish(b"refused", "full")
    pass_ms(scene, 1000)
    assert bodies(client, "full") == [b"in"]
    assert told(scene, "dead_letter_lost") == 0
    scene.begin()
    pass_ms(scene, AWAY_LOOK_MS)
    assert [bodies(client, name) for name in ("full", "q", "here")] == [[], [b"refused"], [b"refused"]]


def lags(scene: Scene, lagging: bool) -> None:
    scene.node.journal.lagging = scene.lane.lagging = lagging


@quorum_only
@pytest.mark.parametrize("why", DEATHS)
@pytest.mark.parametrize("heavy", [False, True])
def test_a_dead_letter_waits_for_a_queue_whose_copies_are_too_far_behind(
    scene: Scene, why: str, heavy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if heavy:
        monkeypatch.setattr(routes, "LIGHT_MAX", -1)
    client = declared(scene)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q", **DEATHS[why]}
    client.declare("dying", durable=True, arguments=arguments)
    lags(scene, True)
    for number in range(3):
        client.publish(b"%d" % number, "dying", delivery_mode=2)
        if why == "rejected":
            client.send(commands.Basic.Get(queue="dying"))
            client.collect()
            (message,) = client.messages()
            client.send(commands.Basic.Reject(delivery_tag=message.tag, requeue=False))
    for _ in range(5):
        pass_ms(scene, 1000)
    dying, target = scene.node.queues["/", "dying"], scene.node.queues["/", "q"]
    assert (dying.unacked_count, target.facts.accepted) == (3, 0)
    assert told(scene, "dead_letters_wait") == 1
    lags(scene, False)
    pass_ms(scene, RETRY_MS)
    assert bodies(client, "q") == [b"0", b"1", b"2"]
    assert dying.unacked_count == 0


@quorum_only
def test_what_no_client_publishes_does_not_enter_a_queue_whose_copies_are_too_far_behind(scene: Scene) -> None:
    client, traced = declared(scene), scene.harness.client()
    kept = commands.Exchange.Declare(exchange="kept", exchange_type="x-recent-history", arguments={})
    client.call(kept, commands.Exchange.DeclareOk)
    client.publish(b"history", "", "kept")
    client.publish(b"delayed", delivery_mode=2, headers={"x-delay": 500})
    full_queue(client)
    target = scene.node.queues["/", "q"]
    lags(scene, True)
    pass_ms(scene, 1000)
    client.call(commands.Queue.Bind(0, "q", "kept"), commands.Queue.BindOk)
    client.publish(b"refused", "full")
    pass_ms(scene, 1000)
    client.call(commands.Queue.Bind(0, "q", "amq.rabbitmq.trace", "#"), commands.Queue.BindOk)
    scene.node.firehose.start("/")
    traced.publish(b"traced", "full")
    pass_ms(scene, 1000)
    assert scene.node.firehose.taps["/"].copies.dropped > 0
    scene.node.firehose.stop("/")
    assert target.facts.accepted == 0
    assert (told(scene, "history_not_given"), told(scene, "delayed_messages_wait")) == (1, 1)
    lags(scene, False)
    pass_ms(scene, AWAY_LOOK_MS)
    assert sorted(bodies(client, "q")) == [b"delayed", b"refused", b"traced"]


def test_history_for_a_queue_that_is_elsewhere_is_said_to_be_lost(scene: Scene) -> None:
    client = declared(scene)
    kept = commands.Exchange.Declare(exchange="kept", exchange_type="x-recent-history", arguments={})
    client.call(kept, commands.Exchange.DeclareOk)
    client.declare("here")
    for _ in range(3):
        client.publish(b"x", "", "kept")
    scene.end()
    for queue in ("q", "here"):
        client.call(commands.Queue.Bind(0, queue, "kept"), commands.Queue.BindOk)
    assert told(scene, "history_not_given") == 1
    assert bodies(client, "here") == [b"x"] * 3


def test_dead_letters_that_wait_are_tried_again_also_when_something_else_expires_before(scene: Scene) -> None:
    client = declared(scene)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q", "x-message-ttl": 100}
    client.declare("dying", durable=True, arguments=arguments)
    scene.end()
    client.publish(b"1", "dying", delivery_mode=2)
    pass_ms(scene, 200)
    client.publish(b"2", "dying", delivery_mode=2)
    pass_ms(scene, 200)
    scene.begin()
    for _ in range(20):
        pass_ms(scene, 100)
    assert bodies(client, "q") == [b"1", b"2"]


def test_dead_letters_that_wait_are_tried_once_in_a_while_however_often_their_queue_is_used(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = declared(scene)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q", "x-message-ttl": 100}
    client.declare("dying", durable=True, arguments=arguments)
    scene.end()
    client.publish(b"x", "dying", delivery_mode=2)
    pass_ms(scene, 200)
    tried = [0]
    dead_letter = Node.dead_letter

    def counted(node: Node, *given: Any) -> Any:
        tried[0] += 1
        return dead_letter(node, *given)

    monkeypatch.setattr(Node, "dead_letter", counted)
    for _ in range(100):
        scene.node.to_dispatch.add(scene.node.queues["/", "dying"])
        pass_ms(scene, 20)
    assert 1 <= tried[0] <= 2
