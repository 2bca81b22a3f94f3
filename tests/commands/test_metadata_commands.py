"""`amqpd user`, `vhost` and `permission`, run as people run them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest
import trio
from click.testing import CliRunner, Result

from amqpd.__main__ import COMMANDS, cli
from amqpd.management.control import socket as control
from amqpd.management.control.answers import Commands
from amqpd.management.errors import AlreadyExists
from amqpd.management.metadata.interface import Plan
from amqpd.management.metadata.stored import StoredMetadata
from amqpd.security.authentication.passwords import verify_password
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import MetadataStore
from amqpd.topology.metadata.sync import TopologySync, transaction_of
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import (
    BindingRecord,
    PermissionRecord,
    Put,
    QueueRecord,
    TopicPermissionRecord,
    UserRecord,
)


def stored(data_dir: Path) -> Topology:
    return trio.run(StoredMetadata(data_dir).read)


def in_store(data_dir: Path, work: Callable[[MetadataStore], Awaitable[Any]]) -> None:
    async def main() -> None:
        store = await SqliteStore.open(data_dir / "metadata.db")
        await work(store)
        await store.aclose()

    trio.run(main)


# -- users


def test_add_a_user_with_a_prompt(ok: Callable[..., str], data_dir: Path) -> None:
    output = ok("user", "add", "alice", "--tag", "monitoring", "--tag", "management", stdin="secret é\nsecret é\n")
    assert "secret" not in output
    added = stored(data_dir).users["alice"]
    assert verify_password(added.password_hash, "secret é".encode())
    assert added.tags == ("monitoring", "management")


@pytest.mark.parametrize(
    ("words", "stdin", "password"),
    [
        (["from argument"], None, "from argument"),
        (["--password-stdin"], "from stdin\r\nnext line\n", "from stdin"),
        (["--password-stdin"], " spaces stay ", " spaces stay "),
    ],
)
def test_add_a_user_with_a_password_from(
    ok: Callable[..., str], data_dir: Path, words: list[str], stdin: str | None, password: str
) -> None:
    ok("user", "add", "alice", *words, stdin=stdin)
    assert verify_password(stored(data_dir).users["alice"].password_hash, password.encode())


def test_a_user_without_a_password_and_one_that_gets_one(ok: Callable[..., str], data_dir: Path) -> None:
    ok("user", "add", "alice", "--no-password")
    assert stored(data_dir).users["alice"] == UserRecord("alice")
    ok("user", "passwd", "alice", "new")
    changed = stored(data_dir).users["alice"].password_hash
    assert verify_password(changed, b"new")
    assert "changed the password" in ok("user", "passwd", "alice", stdin="newer\nnewer\n")
    assert verify_password(stored(data_dir).users["alice"].password_hash, b"newer")
    assert "no password" in ok("user", "passwd", "alice", "--no-password")
    assert stored(data_dir).users["alice"].password_hash == ""


def test_tags_are_replaced_and_the_password_kept(ok: Callable[..., str], data_dir: Path) -> None:
    before = stored(data_dir).users["guest"]
    ok("user", "tags", "guest", "monitoring", "policymaker", "monitoring")
    assert stored(data_dir).users["guest"] == UserRecord("guest", before.password_hash, ("monitoring", "policymaker"))
    ok("user", "tags", "guest")
    assert stored(data_dir).users["guest"].tags == ()


def test_a_deleted_user_takes_its_permissions_along(ok: Callable[..., str], data_dir: Path) -> None:
    ok("permission", "topic", "set", "/", "guest", "amq.topic", "a", "b")
    ok("user", "delete", "guest")
    topology = stored(data_dir)
    assert not topology.users
    assert not topology.permissions
    assert not topology.topic_permissions


def test_list_users(ok: Callable[..., str]) -> None:
    ok("user", "add", "名前", "--no-password", "--tag", "a", "--tag", "b")
    assert (
        ok("user", "list") == "name   tags           password\nguest  administrator  yes\n名前   a, b           no\n"
    )
    assert json.loads(ok("user", "list", "--json")) == [
        {"name": "guest", "tags": ["administrator"], "password": True},
        {"name": "名前", "tags": ["a", "b"], "password": False},
    ]


def test_mistakes_about_users(refused: Callable[..., str], run: Callable[..., Result], data_dir: Path) -> None:
    assert refused("user", "add", "guest", "x") == "there is a user 'guest' already"
    # Before it asks for a password.
    assert refused("user", "add", "guest") == "there is a user 'guest' already"
    assert refused("user", "passwd", "nobody") == "there is no user 'nobody'"
    assert refused("user", "delete", "nobody") == "there is no user 'nobody'"
    assert refused("user", "tags", "nobody") == "there is no user 'nobody'"
    assert refused("user", "add", "", "x") == "a user needs a name that is not empty"
    assert refused("user", "add", "é" * 128, "x") == "the user's name is longer than 255 bytes"
    assert "control characters" in refused("user", "add", "a\nb", "x")
    assert "empty password" in refused("user", "add", "a", "")
    assert "empty password" in refused("user", "add", "a", "--password-stdin", stdin="\n")
    assert "longer than 4096 bytes" in refused("user", "add", "a", "--password-stdin", stdin="x" * 5000)
    assert "cannot be a tag" in refused("user", "tags", "guest", "a,b")
    assert run("user", "add", "a", "x", "--no-password").exit_code == 2
    assert set(stored(data_dir).users) == {"guest"}


# -- virtual hosts


def test_a_virtual_host_comes_with_exchanges_and_goes_with_everything(ok: Callable[..., str], data_dir: Path) -> None:
    ok("vhost", "add", "orders", "--description", "the shop")
    assert "amq.topic" in stored(data_dir).vhosts["orders"].exchanges
    ok("permission", "set", "orders", "guest", "", "", "")
    changes = [
        Put(QueueRecord("orders", "q", 1)),
        Put(BindingRecord("orders", "amq.direct", "q", "queue", "k")),
    ]
    wanted = transaction_of(changes)
    in_store(data_dir, lambda store: store.transact(wanted.compares, wanted.operations))
    assert ok("vhost", "list").splitlines() == [
        "name    description           queues",
        "/       default virtual host  0",
        "orders  the shop              1",
    ]
    assert json.loads(ok("vhost", "list", "--json"))[1] == {
        "name": "orders",
        "description": "the shop",
        "queues": 1,
        "default_queue_type": "",
        "tags": [],
    }
    ok("vhost", "delete", "orders")
    ok("vhost", "add", "orders")
    topology = stored(data_dir)
    assert not topology.vhosts["orders"].queues
    assert not list(topology.vhosts["orders"].bindings())
    assert ("orders", "guest") not in topology.permissions
    assert ("/", "guest") in topology.permissions


def test_a_virtual_host_has_a_default_type_of_queues(ok: Callable[..., str], data_dir: Path) -> None:
    ok("vhost", "add", "orders", "--description", "the shop", "--default-queue-type", "quorum")
    ok("vhost", "default-queue-type", "/", "quorum")
    records = stored(data_dir).vhost_records
    assert [records[name].metadata for name in ("orders", "/")] == [{"default_queue_type": "quorum"}] * 2
    ok("vhost", "default-queue-type", "orders", "classic")
    orders = stored(data_dir).vhost_records["orders"]
    assert (orders.description, orders.metadata) == ("the shop", {"default_queue_type": "classic"})
    assert json.loads(ok("vhost", "list", "--json"))[1]["default_queue_type"] == "classic"


def test_mistakes_about_virtual_hosts(refused: Callable[..., str]) -> None:
    assert refused("vhost", "add", "/") == "there is a virtual host '/' already"
    assert refused("vhost", "delete", "no") == "there is no virtual host 'no'"
    assert "not empty" in refused("vhost", "add", "")
    assert refused("vhost", "default-queue-type", "no", "quorum") == "there is no virtual host 'no'"


# -- permissions


def test_permissions_are_set_listed_and_cleared(ok: Callable[..., str], data_dir: Path) -> None:
    ok("user", "add", "alice", "x")
    ok("permission", "set", "/", "alice", "^a", "", "(b|c)$")
    assert stored(data_dir).permissions["/", "alice"] == PermissionRecord("alice", "/", "^a", "", "(b|c)$")
    ok("permission", "set", "/", "alice", "--", "-x", "", "")
    assert stored(data_dir).permissions["/", "alice"].configure == "-x"
    assert [row["user"] for row in json.loads(ok("permission", "list", "--json"))] == ["alice", "guest"]
    assert json.loads(ok("permission", "list", "--user", "guest", "--vhost", "/", "--json")) == [
        {"vhost": "/", "user": "guest", "configure": ".*", "write": ".*", "read": ".*"}
    ]
    assert ok("permission", "list", "--user", "guest").splitlines() == [
        "vhost  user   configure  write  read",
        "/      guest  .*         .*     .*",
    ]
    ok("permission", "clear", "/", "alice")
    assert ("/", "alice") not in stored(data_dir).permissions


def test_topic_permissions_are_set_listed_and_cleared(ok: Callable[..., str], data_dir: Path) -> None:
    for exchange in ("amq.topic", "b", "c"):
        ok("permission", "topic", "set", "/", "guest", exchange, "^{username}\\.", ".*")
    record = TopicPermissionRecord("guest", "/", "amq.topic", "^{username}\\.", ".*")
    assert stored(data_dir).topic_permissions["/", "guest"]["amq.topic"] == record
    ok("permission", "topic", "clear", "/", "guest", "b")
    assert json.loads(ok("permission", "topic", "list", "--user", "guest", "--json"))[1] == {
        "vhost": "/",
        "user": "guest",
        "exchange": "c",
        "write": "^{username}\\.",
        "read": ".*",
    }
    ok("permission", "topic", "clear", "/", "guest")
    assert ok("permission", "topic", "list").split() == ["vhost", "user", "exchange", "write", "read"]


def test_mistakes_about_permissions(refused: Callable[..., str], data_dir: Path) -> None:
    before = stored(data_dir).permissions
    assert refused("permission", "set", "no", "guest", "", "", "") == "there is no virtual host 'no'"
    assert refused("permission", "set", "/", "no", "", "", "") == "there is no user 'no'"
    assert (
        refused("permission", "set", "/", "guest", ".*", "(", ".*")
        == "the write pattern '(' is not a regular expression that amqpd takes: "
        "missing ) at position 1"
    )
    assert "the read pattern" in refused("permission", "topic", "set", "/", "guest", "x", "", "[")
    assert "default exchange" in refused("permission", "topic", "set", "/", "guest", "", "", "")
    assert "has no permissions" in refused("permission", "clear", "/", "nobody")
    assert "no topic permissions on exchange 'x'" in refused("permission", "topic", "clear", "/", "guest", "x")
    assert "there is no user 'no'" in refused("permission", "list", "--user", "no")
    assert stored(data_dir).permissions == before


# -- the data directory, and a running broker


def test_the_data_directory_is_named_or_of_the_settings(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for directory, sentence in (("empty", "has no metadata.db"), ("missing", "does not exist")):
        result = run("user", "list", "--data-dir", str(tmp_path / directory))
        assert result.exit_code == 1
        assert f"{directory} {sentence}: name the broker's with --data-dir" in result.stderr
    assert not list((tmp_path / "empty").iterdir())
    other = tmp_path / "broken"
    other.mkdir()
    (other / "metadata.db").write_text("no database" * 1000)
    result = run("user", "list", "--data-dir", str(other))
    assert result.exit_code == 1
    assert "is damaged or is not amqpd's metadata" in result.stderr


def test_a_running_broker_is_told_after_the_commit(
    ok: Callable[..., str], refused: Callable[..., str], data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[object, ...]] = []

    def call(*arguments: object, timeout_s: float) -> dict[str, Any]:
        with ThreadPoolExecutor(1) as another:  # trio's run does not nest
            told.append((*arguments, "alice" in another.submit(stored, data_dir).result().users))
        return {}

    monkeypatch.setattr(control, "call", call)
    ok("user", "add", "alice", "x")
    assert told == [(data_dir, "refresh", True)]
    ok("user", "list")
    assert len(told) == 1

    def fail(*_: object, timeout_s: float) -> None:
        raise control.ControlError("it is stuck")

    monkeypatch.setattr(control, "call", fail)
    assert (
        refused("user", "tags", "alice", "a")
        == "it is stored, but the running broker did not take it over: it is stuck"
    )


def test_a_running_broker_has_applied_the_change_when_the_command_returns(
    run: Callable[..., Result], data_dir: Path
) -> None:
    async def main() -> None:
        store = await SqliteStore.open(data_dir / "metadata.db", poll_s=3600)
        topology = Topology()
        sync = TopologySync(store, topology, lambda changes: None)
        await sync.start()

        async def refresh(arguments: dict[str, Any]) -> dict[str, Any]:
            await sync.refresh()
            return {}

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sync.run)
            await nursery.start(control.ControlServer(Commands({"refresh": refresh})).run, data_dir)
            # The command runs trio itself, so it needs a thread.
            for words in (["user", "add", "alice", "x"], ["permission", "set", "/", "alice", "", "", ""]):
                result = await trio.to_thread.run_sync(lambda words=words: run(*words))
                assert result.exit_code == 0, result.output
            assert ("/", "alice") in topology.permissions
            await trio.to_thread.run_sync(lambda: run("user", "delete", "alice"))
            assert "alice" not in topology.users
            assert ("/", "alice") not in topology.permissions
            nursery.cancel_scope.cancel()
        await store.aclose()

    trio.run(main)


def test_a_plan_that_was_overtaken_is_made_anew(data_dir: Path) -> None:
    rounds: list[int] = []

    def plan(topology: Topology) -> Plan:
        rounds.append(len(topology.users))
        if len(rounds) == 1:
            overtake = transaction_of([Put(UserRecord("alice", "first"))])
            # Another process; a thread has its own trio.
            import threading

            thread = threading.Thread(
                target=in_store,
                args=(data_dir, lambda store: store.transact(overtake.compares, overtake.operations)),
            )
            thread.start()
            thread.join()
        if "alice" in topology.users:
            raise AlreadyExists("there is a user 'alice' already")
        return Plan([Put(UserRecord("alice", "second"), create=True)])

    with pytest.raises(AlreadyExists, match="already"):
        trio.run(StoredMetadata(data_dir).change, plan)
    assert rounds == [1, 2]
    assert stored(data_dir).users["alice"].password_hash == "first"


def test_what_was_set_during_a_deletion_does_not_stay(data_dir: Path, ok: Callable[..., str]) -> None:
    left = transaction_of(
        [
            Put(PermissionRecord("ghost", "/", ".*", ".*", ".*")),
            Put(PermissionRecord("guest", "gone", ".*", ".*", ".*")),
            Put(TopicPermissionRecord("ghost", "/", "x")),
            Put(QueueRecord("gone", "q", 1)),
        ]
    )
    in_store(data_dir, lambda store: store.transact(left.compares, left.operations))
    trio.run(StoredMetadata(data_dir).sweep)
    ok("user", "add", "ghost", "x")
    ok("vhost", "add", "gone")
    topology = stored(data_dir)
    assert set(topology.permissions) == {("/", "guest")}
    assert not topology.topic_permissions
    assert not topology.vhosts["gone"].queues


# -- help


def commands() -> Iterator[list[str]]:
    for name in COMMANDS:
        group = cli.get_command(click.Context(cli), name)
        if not isinstance(group, click.Group):
            continue
        yield [name]
        for command, inner in group.commands.items():
            yield [name, command]
            for deeper in inner.commands if isinstance(inner, click.Group) else ():
                yield [name, command, deeper]


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_help_has_an_example_on_a_line_of_its_own(words: list[str]) -> None:
    result = CliRunner().invoke(cli, [*words, "--help"], prog_name="amqpd")
    assert result.exit_code == 0
    examples = [line for line in result.output.splitlines() if line.startswith("    amqpd ")]
    assert any(example.split()[1:2] == words[:1] for example in examples), result.output
