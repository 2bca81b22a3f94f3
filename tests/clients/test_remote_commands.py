"""`amqpd --url`: the commands that ask a running broker, over HTTP, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pika
import pytest

from amqpd.__main__ import run
from amqpd.management.control.remote import ACTS, LOOKS, remote_broker
from amqpd.management.errors import BadArgument

from .broker_process import BrokerProcess, free_port

Remote = Callable[..., str]
TAGS = {"watcher": "monitoring", "clerk": "management"}


@pytest.fixture(scope="module")
def http_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, http_port: int) -> Iterator[BrokerProcess]:
    environment = {"AMQPD_HTTP_ENABLED": "true", "AMQPD_HTTP_PORT": str(http_port)}
    broker = BrokerProcess(tmp_path_factory.mktemp("remote") / "data", environment=environment)
    try:
        broker.start()
        yield broker
        assert broker.terminate() == 0
        assert "Traceback" not in broker.log
    finally:
        broker.close()


@pytest.fixture
def remote(broker: BrokerProcess, http_port: int, capsys: pytest.CaptureFixture[str]) -> Remote:
    def told(*words: str, login: str = "guest:guest", code: int = 0) -> str:
        capsys.readouterr()
        ended = run(["--url", f"http://{login}@127.0.0.1:{http_port}", *words])
        said = capsys.readouterr()
        assert ended == code, (said.out, said.err)
        return said.out if code == 0 else said.err

    return told


def test_the_same_is_said_as_on_its_machine(
    broker: BrokerProcess, remote: Remote, capsys: pytest.CaptureFixture[str]
) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("far", durable=True)
        channel.confirm_delivery()
        for body in (b"one", b"two"):
            channel.basic_publish("", "far", body)
        for words in (
            ("queue", "list", "--columns", "vhost,name,messages"),
            ("exchange", "list"),
            ("binding", "list"),
            ("alarm", "list"),
        ):
            there = remote(*words)
            assert run(["--data-dir", str(broker.data_dir), *words]) == 0
            assert there == capsys.readouterr().out
        assert "far" in remote("top", "--once")
        assert '"messages_ready": 2' in remote("status", "--json")
        assert "2 messages wait" in remote("queue", "why", "far")
        assert "two" in remote("message", "list", "far", "--body", "10")
        remote("message", "delete", "far", "--all", "--yes")
        assert channel.queue_declare("far", passive=True).method.message_count == 0
        remote("connection", "close", "--all")
        with pytest.raises(pika.exceptions.AMQPError):
            channel.queue_declare("far", passive=True)
    assert broker.wait_log("changed over http.*user=guest.*message delete")


def test_what_needs_its_machine_is_refused(remote: Remote) -> None:
    for words in (("user", "list"), ("backup", "/tmp/x"), ("audit", "show")):
        assert "this needs the machine of the broker" in remote(*words, code=2)
    assert "this needs the machine of the broker" in remote("ctl", "list_queues", code=64)
    assert "cluster asks no broker" in remote("cluster", "status", code=2)
    assert "name two brokers" in remote("--data-dir", "/tmp/x", "queue", "list", code=2)


def test_a_password_that_is_wrong_and_a_user_without_the_right(broker: BrokerProcess, remote: Remote) -> None:
    definitions = {"users": [{"name": name, "password": name, "tags": tags} for name, tags in TAGS.items()]}
    (broker.data_dir / "users.json").write_text(json.dumps(definitions))
    there = ["--data-dir", str(broker.data_dir)]
    assert run([*there, "definitions", "import", str(broker.data_dir / "users.json")]) == 0
    for login in ("guest:hush", "nobody:hush"):
        said = remote("queue", "list", login=login, code=1)
        assert f"user '{login.partition(':')[0]}' cannot log in at http://127.0.0.1:" in said
        assert "the password is wrong, there is no such user" in said
        assert "hush" not in said
    for command in (["queue", "list"], ["status"], ["top", "--once"]):
        remote(*command, login="watcher:watcher")
        assert "does not let user 'clerk' do this" in remote(*command, login="clerk:clerk", code=1)
    said = remote("alarm", "set", "x", login="watcher:watcher", code=1)
    assert "does not let user 'watcher' do this: Not administrator user" in said


def test_nobody_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--url", f"http://127.0.0.1:{free_port()}", "queue", "list"]) == 1
    assert "cannot talk to http://127.0.0.1:" in capsys.readouterr().err


def test_the_address_from_the_environment(
    remote: Remote, http_port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AMQPD_URL", f"http://guest:guest@127.0.0.1:{http_port}/")
    assert run(["queue", "list"]) == 0
    assert "vhost" in capsys.readouterr().out


@pytest.mark.parametrize("url", ["", "here", "ftp://here", "http://", "http://here:0x", "http://here/?a=b"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(BadArgument):
        remote_broker(url)


def test_parts_of_an_address() -> None:
    found = remote_broker("https://al%40ice:p%3Aw@[::1]/rabbit/")
    assert (found.scheme, found.host, found.port, found.prefix) == ("https", "::1", 15671, "/rabbit")
    assert (found.user, found.password) == ("al@ice", "p:w")
    assert str(found) == "https://[::1]:15671/rabbit"
    assert "p:w" not in repr(found)
    plain = remote_broker("http://here")
    assert (plain.port, plain.user, plain.password) == (15672, "guest", "guest")


def test_no_command_is_both_a_look_and_an_act() -> None:
    assert not LOOKS & ACTS
