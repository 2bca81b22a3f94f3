"""An operator declares, binds, deletes and purges: what is refused, as what, and what is there afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import structlog.testing
import trio
import trio.testing
from pamqp import commands

from amqpd.audit.acts import Asker
from amqpd.flow.client_counters import ARGUMENTS_BYTES_MAX
from amqpd.management import bindings, exchanges, queues
from amqpd.management.errors import (
    AlreadyExists,
    BadArgument,
    Conflict,
    ManagementError,
    NotFound,
    NotPermitted,
    Unavailable,
)
from amqpd.management.running import Running
from amqpd.topology import plans
from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.records import BindingRecord, Change, Put
from tests.harness.harness import Client
from tests.management.rig import ALICE, ROOT, running

pytestmark = pytest.mark.trio


async def test_a_queue_is_declared_once_and_clients_meet_the_same_one() -> None:
    harness, on = running()
    table = {"x-max-length": 5}
    assert await queues.declare(on, ROOT, "/", "q", arguments=table) is True
    assert await queues.declare(on, ROOT, "/", "q", arguments=table) is False
    record = harness.node.queues["/", "q"].record
    assert (record.durable, record.exclusive, record.owner, dict(record.arguments)) == (True, False, None, table)
    client: Client = harness.client()
    client.declare("q", durable=True, arguments=table)
    client.publish(b"x", "q")
    assert await queues.delete(on, ROOT, "/", "q") == 1
    assert ("/", "q") not in harness.node.queues
    with pytest.raises(NotFound, match="no queue 'q' in vhost '/'"):
        await queues.delete(on, ROOT, "/", "q")


async def test_an_exchange_is_declared_once_and_goes_when_it_is_unused() -> None:
    harness, on = running()
    assert await exchanges.declare(on, ROOT, "/", "x", "fanout", internal=True) is True
    assert await exchanges.declare(on, ROOT, "/", "x", "fanout", internal=True) is False
    await queues.declare(on, ROOT, "/", "q")
    await bindings.bind(on, ROOT, "/", "x", "q")
    with pytest.raises(Conflict, match="exchange 'x' in vhost '/' in use"):
        await exchanges.delete(on, ROOT, "/", "x", if_unused=True)
    await exchanges.delete(on, ROOT, "/", "x")
    assert "x" not in harness.topology.vhosts["/"].exchanges
    with pytest.raises(NotFound, match="no exchange 'x'"):
        await exchanges.delete(on, ROOT, "/", "x")


Act = Callable[[Running], Awaitable[object]]
REFUSALS: list[tuple[Act, type[ManagementError], str]] = [
    (lambda on: queues.declare(on, ROOT, "none", "q"), NotFound, "there is no virtual host 'none'"),
    (lambda on: queues.declare(on, ROOT, "/", "q", durable=False), AlreadyExists, "inequivalent arg 'durable'"),
    (lambda on: queues.declare(on, ROOT, "/", "q", arguments={"x-expires": 5}), AlreadyExists, "'x-expires'"),
    (lambda on: queues.declare(on, ROOT, "/", "n", arguments={"x-expires": "5"}), BadArgument, "x-expires"),
    (lambda on: queues.declare(on, ROOT, "/", "n", arguments={"big": 1 << 70}), BadArgument, "does not fit in 64"),
    (lambda on: queues.declare(on, ROOT, "/", ""), BadArgument, "not empty"),
    (lambda on: queues.declare(on, ROOT, "/", "n" * 256), BadArgument, "longer than 255 bytes"),
    (lambda on: queues.declare(on, ROOT, "/", "\ud800"), BadArgument, "not UTF-8"),
    (lambda on: queues.declare(on, ROOT, "/", "amq.n"), NotPermitted, "reserved prefix"),
    (lambda on: queues.declare(on, ROOT, "/", "mine"), Conflict, "locked queue 'mine'"),
    (lambda on: queues.delete(on, ROOT, "/", "mine"), Conflict, "locked queue 'mine'"),
    (lambda on: queues.purge(on, ROOT, "/", "mine"), Conflict, "locked queue 'mine'"),
    (lambda on: queues.purge(on, ROOT, "/", "none"), NotFound, "no queue 'none'"),
    (lambda on: queues.delete(on, ROOT, "/", "q", if_empty=True), Conflict, "not empty"),
    (lambda on: queues.delete(on, ROOT, "/", "consumed", if_unused=True), Conflict, "in use"),
    (lambda on: exchanges.declare(on, ROOT, "/", "amq.direct", "fanout"), AlreadyExists, "inequivalent arg 'type'"),
    (lambda on: exchanges.declare(on, ROOT, "/", "", "direct"), NotPermitted, "default exchange"),
    (lambda on: exchanges.delete(on, ROOT, "/", "amq.direct"), NotPermitted, "system exchange"),
    (lambda on: bindings.bind(on, ROOT, "/", "none", "q"), NotFound, "no exchange 'none'"),
    (lambda on: bindings.bind(on, ROOT, "/", "amq.direct", "none"), NotFound, "no queue 'none'"),
    (lambda on: bindings.bind(on, ROOT, "/", "", "q"), NotPermitted, "default exchange"),
    (lambda on: bindings.bind(on, ROOT, "/", "amq.direct", "mine"), Conflict, "locked queue"),
    (lambda on: bindings.bind(on, ROOT, "/", "amq.direct", "q", routing_key="k" * 256), BadArgument, "255"),
    (lambda on: bindings.unbind(on, ROOT, "/", "amq.direct", "q", "queue", "k"), NotFound, "no binding 'k'"),
]


@pytest.mark.parametrize(("act", "kind", "sentence"), REFUSALS)
async def test_what_cannot_be_is_refused_as_what_it_is(act: Act, kind: type[ManagementError], sentence: str) -> None:
    harness, on = running()
    client: Client = harness.client()
    client.declare("q", durable=True)
    client.publish(b"x", "q")
    client.declare("consumed")
    client.consume("consumed")
    client.declare("mine", exclusive=True)
    version = harness.topology.version
    with pytest.raises(ManagementError, match=sentence) as refused:
        await act(on)
    assert type(refused.value) is kind
    assert harness.topology.version == version
    assert harness.bugs == []


async def test_the_users_permissions_count_and_nobodys_do_not() -> None:
    harness, on = running()
    harness.access.forbidden = {("configure", "q"), ("read", "q"), ("write", "q"), ("read", "amq.direct")}
    assert await queues.declare(on, ROOT, "/", "q")
    acts: list[Awaitable[object]] = [
        queues.declare(on, ALICE, "/", "q"),
        queues.delete(on, ALICE, "/", "q"),
        queues.purge(on, ALICE, "/", "q"),
        bindings.bind(on, ALICE, "/", "amq.direct", "q"),
        queues.declare(on, ALICE, "/", "r", arguments={"x-dead-letter-exchange": "amq.direct", "x-max-length": 1}),
    ]
    for act, allowed in zip(acts, (False, False, False, False, True), strict=True):
        if allowed:
            assert await act
        else:
            with pytest.raises(NotPermitted, match="access to queue 'q' refused"):
                await act


async def test_limits_refuse() -> None:
    _, on = running(Limits(node_queues_max=1))
    await queues.declare(on, ROOT, "/", "q")
    with pytest.raises(Conflict, match="queue limit in cluster"):
        await queues.declare(on, ROOT, "/", "r")


async def test_arguments_that_are_too_large_are_a_bad_argument() -> None:
    _, on = running()
    with pytest.raises(BadArgument, match=f"arguments of queue 'q' .* more than {ARGUMENTS_BYTES_MAX}"):
        await queues.declare(on, ROOT, "/", "q", arguments={"x": "y" * ARGUMENTS_BYTES_MAX})


def bound(on: Running, **named: Any) -> list[bindings.BindingRow]:
    found = bindings.walked(on.vhost("/"), **named)
    return [bindings.binding_row(each) for each in found if each is not None]


async def test_bindings_are_named_by_a_key_that_is_the_same_everywhere() -> None:
    _, on = running()
    await queues.declare(on, ROOT, "/", "q")
    keys = {}
    for routing_key, table in (("", {}), ("a b/~", {}), ("k", {"x": 1}), ("k", {"x": 2}), ("k", {})):
        made = await bindings.bind(on, ROOT, "/", "amq.headers", "q", "queue", routing_key, table)
        assert made["new"]
        again = await bindings.bind(on, ROOT, "/", "amq.headers", "q", "queue", routing_key, table)
        assert again == {"new": False, "properties_key": made["properties_key"]}
        keys[made["properties_key"]] = (routing_key, table)
    assert len(keys) == 5
    assert (keys["~"], keys["a+b%2F%7E"], keys["k"]) == (("", {}), ("a b/~", {}), ("k", {}))
    rows = bound(on, source="amq.headers", destination="q", destination_type="queue")
    assert {row["properties_key"]: (row["routing_key"], row["arguments"]) for row in rows} == keys
    for left, key in zip((4, 3, 2, 1, 0), keys, strict=True):
        await bindings.unbind(on, ROOT, "/", "amq.headers", "q", "queue", key)
        assert len(bound(on, source="amq.headers")) == left
    assert bound(on, destination_type="exchange") == []


async def test_the_key_of_a_binding_with_arguments_depends_on_nothing_else() -> None:
    record = BindingRecord("/", "x", "q", "queue", "k", arguments={"a": 1}, arguments_key="the text")
    key = bindings.properties_key(record)
    assert key == "k~QaH2VNx5qaxkWvpV"
    assert bindings.properties_key(replace(record, vhost="v", source="y", durable=False)) == key


async def test_purging_counts_what_is_gone_and_is_in_the_log() -> None:
    harness, on = running()
    client: Client = harness.client()
    client.declare("q")
    for _ in range(3):
        client.publish(b"x", "q")
    with structlog.testing.capture_logs() as logged:
        assert await queues.purge(on, ROOT, "/", "q") == 3
    assert [(each["event"], each["count"], each["uid"]) for each in logged] == [("queue purged by an operator", 3, 0)]
    assert harness.node.queues["/", "q"].backlog.ready == 0


async def test_a_queue_whose_purge_fails_is_out_of_service(monkeypatch: pytest.MonkeyPatch) -> None:
    harness, on = running()
    await queues.declare(on, ROOT, "/", "q")

    def purging(*_: object) -> Iterator[int]:
        yield 1
        raise ValueError("a bug")

    monkeypatch.setattr(type(harness.node.queues["/", "q"]), "purging", purging)
    with pytest.raises(Unavailable, match="the queue 'q' is out of service"):
        await queues.purge(on, ROOT, "/", "q")
    assert harness.node.queues["/", "q"].crash_reason is not None
    with pytest.raises(NotFound, match="has crashed"):
        await queues.purge(on, ROOT, "/", "q")


async def test_somebody_is_faster_while_the_store_answers() -> None:
    """The same again is no error; something else with that name is."""
    harness, on = running(automatic=False)
    for durable, kind in ((True, None), (False, AlreadyExists)):
        outcome: list[object] = []

        async def declare(outcome: list[object] = outcome) -> None:
            try:
                outcome.append(await queues.declare(on, ROOT, "/", "q"))
            except AlreadyExists as error:
                outcome.append(type(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(declare)
            await trio.testing.wait_all_tasks_blocked()
            assert outcome == []
            record: Any = replace(harness._submitted[0][0][0].record, id=7 << 8, durable=durable)  # type: ignore[union-attr]
            harness._apply([Put(record)])
            harness.answer()
        assert outcome == [kind or False]
        harness._apply(plans.remove(harness.topology.vhosts["/"], [record]))


async def test_the_virtual_host_goes_while_the_store_answers() -> None:
    harness, on = running(automatic=False)
    harness._apply(plans.create_vhost("v"))
    async with trio.open_nursery() as nursery:

        async def declare() -> None:
            with pytest.raises(NotFound, match="there is no virtual host 'v'"):
                await queues.declare(on, ROOT, "v", "q")

        nursery.start_soon(declare)
        await trio.testing.wait_all_tasks_blocked()
        harness._apply(plans.delete_vhost(harness.topology, "v"))
        harness.answer()
    assert harness.bugs == []


async def test_a_client_sees_what_an_operator_deleted() -> None:
    harness, on = running()
    client: Client = harness.client()
    client.declare("q")
    client.consume("q", tag="t")
    await queues.delete(on, ROOT, "/", "q")
    client.collect()
    assert client.expect(commands.Basic.Cancel).consumer_tag == "t"


async def test_what_a_user_declares_over_http_is_its_act_and_the_command_line_has_a_name() -> None:
    harness, on = running()
    told: list[tuple[str, str | None]] = []

    def act(change: Change, by: Asker | None) -> None:
        key = change.record.key if isinstance(change, Put) else change.key
        told.append((f"{type(change).__name__} {key[0]}", None if by is None else by.user))

    harness.node.acts.told_changes = act
    for by in (ALICE, ROOT):
        await queues.declare(on, by, "/", "q")
        await exchanges.declare(on, by, "/", "x", "fanout")
        await bindings.bind(on, by, "/", "x", "q", "queue", "k")
        await bindings.unbind(on, by, "/", "x", "q", "queue", "k")
        await exchanges.delete(on, by, "/", "x")
        await queues.delete(on, by, "/", "q")
    steps = ["Put queue", "Put exchange", "Put binding", "Delete binding", "Delete exchange", "Delete queue"]
    assert told == [(step, "alice") for step in steps] + [(step, "rmq-cli") for step in steps]
