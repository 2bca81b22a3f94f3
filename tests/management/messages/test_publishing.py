"""An operator publishes a message and gets messages, with the checks that a client meets."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from pamqp import commands

from amqpd.journal.lane import Lane
from amqpd.management import bindings, exchanges, queues
from amqpd.management.errors import BadArgument, Conflict, ManagementError, NotFound, NotPermitted, Unavailable
from amqpd.management.messages import publishing
from amqpd.management.messages.getting import get
from amqpd.management.messages.publishing import body_of, publish
from amqpd.management.operators import Operator
from amqpd.management.running import Running
from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.records import Put, UserRecord
from tests.harness.harness import Client
from tests.harness.invariants import check_node
from tests.management.rig import ALICE, ROOT, running

pytestmark = pytest.mark.trio

PROPERTIES = {
    "content_type": "text/plain",
    "delivery_mode": 2,
    "priority": 3,
    "correlation_id": "c",
    "expiration": "60000",
    "message_id": "m",
    "timestamp": 1_700_000_000,
    "type": "t",
    "app_id": "a",
    "headers": {"x": 1, "y": ["z"]},
}


async def test_what_is_published_reaches_clients_and_is_got_as_it_was() -> None:
    harness, on = running()
    await queues.declare(on, ROOT, "/", "q")
    assert await publish(on, ROOT, "/", "", "q", "é".encode(), PROPERTIES) is True
    assert harness.rows, "it is persistent, and on disk"
    [row] = await get(on, ROOT, "/", "q")
    assert row == {
        "payload_bytes": 2,
        "redelivered": False,
        "exchange": "",
        "routing_key": "q",
        "message_count": 0,
        "properties": PROPERTIES,
        "payload": "é",
        "payload_encoding": "string",
    }
    client: Client = harness.client()
    client.consume("q", no_ack=True)
    [message] = client.messages()
    assert (message.redelivered, message.body) == (True, "é".encode())
    assert message.properties.message_id == "m"
    check_node(harness.node)


async def test_what_reaches_no_queue_is_said_and_counted() -> None:
    harness, on = running()
    assert await publish(on, ROOT, "/", "amq.direct", "nowhere", b"") is False
    found = harness.node.unroutable.of_exchange("/", "amq.direct")
    assert {outcome.value: count for outcome, count in found.items() if count} == {"returned": 1}


async def test_many_queues_get_it_with_others_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "COPIES_A_STEP", 2)
    harness, on = running()
    client: Client = harness.client()
    for number in range(5):
        client.declare(f"q{number}")
        client.call(commands.Queue.Bind(queue=f"q{number}", exchange="amq.fanout"), commands.Queue.BindOk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish, on, ROOT, "/", "amq.fanout", "", b"x")
        await trio.testing.wait_all_tasks_blocked()
    assert [harness.node.queues["/", f"q{number}"].ready_count for number in range(5)] == [1] * 5


async def test_the_carbon_copies_are_routed_and_the_blind_ones_are_not_told() -> None:
    harness, on = running()
    for name in ("a", "b", "c"):
        await queues.declare(on, ROOT, "/", name)
    await publish(on, ROOT, "/", "", "a", b"x", {"headers": {"CC": ["b"], "BCC": ["c"]}})
    for name in ("a", "b", "c"):
        [row] = await get(on, ROOT, "/", name)
        assert row["properties"]["headers"] == {"CC": ["b"]}
    check_node(harness.node)


async def test_nothing_is_published_to_a_queue_whose_copies_are_too_far_behind() -> None:
    harness, on = running()
    for name in ("q", "other"):
        await queues.declare(on, ROOT, "/", name)
        await bindings.bind(on, ROOT, "/", "amq.fanout", name)
    queue = harness.node.queues["/", "q"]
    queue.lane = Behind(1, 0)
    queue.lane.lagging = True
    with pytest.raises(Unavailable, match="the copies of the queue 'q' are too far behind"):
        await publish(on, ROOT, "/", "amq.fanout", "", b"x")
    assert [harness.node.queues["/", name].ready_count for name in ("q", "other")] == [0, 0]


class Behind(Lane):
    def force(self) -> None:
        pass


Act = Callable[[Running], Awaitable[object]]


def refused(**properties: Any) -> Act:
    return lambda on: publish(on, ALICE, "/", "", "q", b"x", properties)


REFUSALS: list[tuple[Act, type[ManagementError], str]] = [
    (lambda on: publish(on, ALICE, "none", "", "q", b""), NotFound, "there is no virtual host"),
    (lambda on: publish(on, ALICE, "/", "none", "q", b""), NotFound, "no exchange 'none'"),
    (lambda on: publish(on, ALICE, "/", "amq.rabbitmq.trace", "q", b""), NotPermitted, "internal exchange"),
    (lambda on: publish(on, ALICE, "/", "amq.topic", "q", b""), NotPermitted, "write access to exchange 'amq.topic'"),
    (lambda on: publish(on, ALICE, "/", "", "q", b"x" * 2000), BadArgument, "message size 2000 is larger"),
    (lambda on: publish(on, ALICE, "/", "", "k" * 256, b""), BadArgument, "longer than 255"),
    (lambda on: publish(on, ALICE, "/", "", "\ud800", b""), BadArgument, "not UTF-8"),
    (lambda on: publish(on, ALICE, "/", "", "full", b""), Conflict, "the queue 'full' refused the message"),
    (refused(delivery_mode="2"), BadArgument, "delivery_mode must be a number"),
    (refused(priority=256), BadArgument, "from 0 to 255"),
    (refused(timestamp=2**62), BadArgument, "no timestamp"),
    (refused(message_id=1), BadArgument, "message_id must be a text"),
    (refused(wrong=1), BadArgument, "no property 'wrong'"),
    (refused(headers=[1]), BadArgument, "arguments must be an object"),
    (refused(headers={"CC": "b"}), BadArgument, "CC"),
    (refused(expiration="soon"), BadArgument, "expiration"),
    (refused(user_id="bob"), BadArgument, "user_id property set to 'bob' but authenticated user was 'alice'"),
    (refused(reply_to="amq.rabbitmq.reply-to"), BadArgument, "fast reply consumer does not exist"),
    (lambda on: get(on, ALICE, "/", "none"), NotFound, "no queue 'none'"),
    (lambda on: get(on, ALICE, "/", "mine"), Conflict, "locked queue"),
    (lambda on: get(on, ALICE, "/", "secret"), NotPermitted, "read access to queue 'secret'"),
    (lambda on: get(on, ALICE, "/", "q", count=0), BadArgument, "count must be"),
    (lambda on: get(on, ALICE, "/", "q", count=1001), BadArgument, "count must be"),
    (lambda on: get(on, ALICE, "/", "q", ackmode="no"), BadArgument, "ackmode is one of"),  # type: ignore[arg-type]
    (lambda on: get(on, ALICE, "/", "q", truncate=-1), BadArgument, "truncate must be"),
]


@pytest.mark.parametrize(("act", "kind", "sentence"), REFUSALS)
async def test_what_cannot_be_is_refused_as_what_it_is(act: Act, kind: type[ManagementError], sentence: str) -> None:
    harness, on = running(Limits(message_bytes_max=1000))
    client: Client = harness.client()
    client.declare("mine", exclusive=True)
    for name in ("q", "secret"):
        await queues.declare(on, ROOT, "/", name)
    await queues.declare(on, ROOT, "/", "full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    harness.access.forbidden = {("write", "amq.topic"), ("read", "secret")}
    with pytest.raises(ManagementError, match=sentence) as error:
        await act(on)
    assert type(error.value) is kind
    assert not any(queue.ready_count for queue in harness.node.queues.values())
    assert harness.bugs == []


async def test_nothing_is_published_while_the_disk_is_short() -> None:
    _, on = running()
    on.node.alarms.put("disk", "watch", True, 0)
    with pytest.raises(Unavailable, match="the disk alarm is on: nothing is published until it is off"):
        await publish(on, ROOT, "/", "", "q", b"")


async def test_an_impersonator_and_who_may_do_everything_claim_to_be_others() -> None:
    harness, on = running()
    await queues.declare(on, ROOT, "/", "q")
    harness._apply([Put(UserRecord("eve", tags=("impersonator",)))])
    for by in (ROOT, Operator(user="eve"), Operator(user="bob")):
        assert await publish(on, by, "/", "", "q", b"", {"user_id": "bob"})


async def test_what_is_delayed_waits() -> None:
    harness, on = running()
    await queues.declare(on, ROOT, "/", "q")
    await exchanges.declare(on, ROOT, "/", "later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    client: Client = harness.client()
    client.call(commands.Queue.Bind(queue="q", exchange="later"), commands.Queue.BindOk)
    assert await publish(on, ROOT, "/", "later", "", b"x", {"delivery_mode": 2, "headers": {"x-delay": 1000}})
    assert harness.node.queues["/", "q"].ready_count == 0
    harness.node.now_ms += 1001
    harness.step()
    [row] = await get(on, ROOT, "/", "q")
    assert row["properties"]["headers"] == {"x-delay": -1000}


@pytest.mark.parametrize(
    ("ackmode", "left", "dead"),
    [
        ("ack_requeue_true", [0, 1, 2], []),
        ("reject_requeue_true", [0, 1, 2], []),
        ("ack_requeue_false", [2], []),
        ("reject_requeue_false", [2], [0, 1]),
    ],
)
async def test_what_becomes_of_what_is_got(ackmode: Any, left: list[int], dead: list[int]) -> None:
    harness, on = running()
    await queues.declare(on, ROOT, "/", "dead")
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    await queues.declare(on, ROOT, "/", "q", arguments=to_dead)
    for number in range(3):
        await publish(on, ROOT, "/", "", "q", b"%d" % number)
    rows = await get(on, ROOT, "/", "q", count=2, ackmode=ackmode)
    assert [(row["payload"], row["message_count"]) for row in rows] == [("0", 2), ("1", 1)]
    assert harness.node.queues["/", "q"].backlog.unacked == 0
    for name, expected in (("q", left), ("dead", dead)):
        assert [int(row["payload"]) for row in await get(on, ROOT, "/", name, count=9)] == expected
    check_node(harness.node)


async def test_bodies_that_are_no_text_and_long_ones() -> None:
    _, on = running()
    await queues.declare(on, ROOT, "/", "q")
    await publish(on, ROOT, "/", "", "q", b"\xff" * 4)
    [row] = await get(on, ROOT, "/", "q", truncate=2)
    assert (row["payload"], row["payload_encoding"], row["payload_bytes"]) == (
        b64encode(b"\xff\xff").decode(),
        "base64",
        4,
    )
    [row] = await get(on, ROOT, "/", "q", encoding="base64", ackmode="ack_requeue_false")
    assert (body_of(row["payload"], "base64"), row["redelivered"]) == (b"\xff" * 4, True)
    assert await get(on, ROOT, "/", "q") == []


async def test_who_leaves_while_the_disk_is_read_has_taken_nothing() -> None:
    harness, on = running()
    client: Client = harness.client()
    client.declare("q", durable=True)
    for number in range(3):
        client.publish(b"%d" % number, "q", delivery_mode=2)
    harness.node.queues["/", "q"].messages.shrink(0)
    still = Running(harness.node, lambda: None)
    with trio.move_on_after(0) as left:
        await get(still, ROOT, "/", "q", count=3)
    assert left.cancelled_caught
    harness.step()
    queue = harness.node.queues["/", "q"]
    assert (queue.ready_count, queue.backlog.unacked) == (3, 0)
    assert [row["payload"] for row in await get(on, ROOT, "/", "q", count=9)] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("payload", "encoding", "sentence"),
    [("\ud800", "string", "half a surrogate pair"), ("?", "base64", "not base64"), ("", "hex", "string or base64")],
)
async def test_payloads_that_stand_for_nothing(payload: str, encoding: str, sentence: str) -> None:
    with pytest.raises(BadArgument, match=sentence):
        body_of(payload, encoding)
