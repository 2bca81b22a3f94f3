"""`amqpd queue`, `exchange`, `binding` and `message publish` on a real broker: what they say, and what is there then.

Not verified here: what is refused, and why (`tests/management`), many nodes (`test_cluster_management.py`).
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from amqpd.__main__ import run
from tests.clients.broker_process import BrokerProcess, free_port

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    port = free_port()
    environment = {"AMQPD_HTTP_ENABLED": "true", "AMQPD_HTTP_PORT": str(port)}
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", environment=environment)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def say(broker: BrokerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    """Exit code, standard output and standard error of a command, whose standard input is no terminal."""

    def say(*words: str, stdin: bytes = b"", url: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False))
        where = ["--url", url] if url else ["--data-dir", str(broker.data_dir)]
        code = run([*where, *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return say


def test_a_queue_from_declaration_to_deletion(say: Say) -> None:
    assert say("queue", "declare", "jobs", "--argument", "x-max-length=3") == (
        *(0, "made queue 'jobs' in virtual host '/'\n"),
        "",
    )
    assert say("queue", "declare", "jobs", "--arguments", '{"x-max-length": 3}')[1].startswith("queue 'jobs' is in")
    code, _, wrong = say("queue", "declare", "jobs")
    assert (code, "its x-max-length is 3, and none was asked for" in wrong) == (1, True)
    published = say("message", "publish", "hello", "--routing-key", "jobs", "--header", "a=1", "--property", "type=x")
    assert published == (0, "published 5 bytes to the default exchange: routed and confirmed, and is on disk\n", "")
    [message] = json.loads(say("message", "list", "jobs", "--json")[1])
    assert (message["payload"], message["properties"]["headers"], message["properties"]["type"]) == (
        *("hello", {"a": 1}),
        "x",
    )
    assert message["properties"]["delivery_mode"] == 2
    assert "not empty" in say("queue", "delete", "jobs", "--if-empty")[2]
    assert say("queue", "purge", "jobs")[1] == "purged queue 'jobs' in virtual host '/': 1 ready message is gone\n"
    assert say("queue", "delete", "jobs", "--if-empty")[0] == 0
    assert say("queue", "delete", "jobs")[0] == 1


def test_exchanges_and_bindings(say: Say, tmp_path: Path) -> None:
    assert say("exchange", "declare", "orders", "--type", "topic")[0] == 0
    assert say("queue", "declare", "new")[0] == 0
    key = ("--source", "orders", "--destination", "new", "--routing-key", "order.*")
    made = "made binding 'orders' -> queue 'new', routing key 'order.*'"
    assert say("binding", "declare", *key)[1].startswith(made)
    assert "is there already" in say("binding", "declare", *key)[1]
    assert "order.*" in say("exchange", "show", "orders")[1]
    body = tmp_path / "order.bin"
    body.write_bytes(b"\x00\xff\n")
    route = ("--exchange", "orders", "--routing-key", "order.1", "--transient")
    assert say("message", "publish", "--file", str(body), *route)[1].endswith("it is transient\n")
    assert say("message", "publish", *route, stdin=b"from a pipe\n")[0] == 0
    rows = json.loads(say("message", "list", "new", "--json")[1])
    assert [row["payload_bytes"] for row in rows] == [3, 12]
    assert rows[1]["payload"] == "from a pipe\n"
    code, _, wrong = say("message", "publish", "x", "--exchange", "orders", "--routing-key", "none")
    assert (code, "has no binding for the routing key 'none'" in wrong) == (1, True)
    assert say("binding", "delete", *key)[0] == 0
    assert "there is no binding from exchange 'orders'" in say("binding", "delete", *key)[2]
    assert "nothing is bound to it" in say("exchange", "show", "orders")[1]
    assert say("exchange", "delete", "orders", "--if-unused")[0] == 0
    assert "2 ready messages are gone with it" in say("queue", "delete", "new")[1]


def test_many_queues_are_shown_before_anything_is_done(say: Say) -> None:
    for number in range(25):
        say("queue", "declare", f"many-{number:02}")
    say("message", "publish", "x", "--routing-key", "many-07")
    code, out, _ = say("queue", "purge", "--matching", "^many-", "--dry-run")
    assert (code, out.splitlines()[-2:]) == (
        0,
        ["and 5 more; --full shows all", "25 queues with 1 ready message would be purged"],
    )
    code, _, wrong = say("queue", "delete", "--matching", "^many-")
    assert (code, "nothing was done: --yes is needed" in wrong) == (1, True)
    assert say("queue", "delete", "--matching", "^many-", "--only", "empty", "--yes")[1].splitlines()[-1] == (
        "deleted 24 queues with 0 ready messages"
    )
    found = json.loads(say("queue", "delete", "--matching", "^many-", "--yes", "--json")[1])
    assert [(row["name"], row["messages"], row["refused"]) for row in found] == [("many-07", 1, None)]
    assert say("queue", "delete", "--matching", "^many-", "--yes") == (0, "no queue is meant: nothing to do\n", "")


def test_over_http_a_user_s_permissions_count(say: Say, broker: BrokerProcess) -> None:
    url = f"http://guest:guest@127.0.0.1:{broker.environment['AMQPD_HTTP_PORT']}"
    assert say("queue", "declare", "far", url=url)[0] == 0
    assert say("message", "publish", "x" * 300_000, "--routing-key", "far", url=url)[0] == 0
    assert say("user", "add", "boss", "secret", "--tag", "administrator")[0] == 0
    boss = url.replace("guest:guest", "boss:secret")
    for command in (
        ("queue", "declare", "theirs"),
        ("queue", "purge", "far"),
        ("message", "publish", "x", "--routing-key", "far"),
        ("exchange", "declare", "theirs"),
    ):
        code, _, wrong = say(*command, url=boss)
        assert (code, "refused" in wrong or "no permissions" in wrong) == (1, True), (command, wrong)
    assert say("queue", "purge", "--matching", ".", "--yes", url=boss)[1] == "no queue is meant: nothing to do\n"
    assert say("queue", "delete", "--matching", "^far$", "--yes", url=url)[0] == 0


def test_http_has_rabbitmq_s_words_and_ours_beside_them(broker: BrokerProcess) -> None:
    address = f"http://127.0.0.1:{broker.environment['AMQPD_HTTP_PORT']}/api/policies/%2F/p"
    body = json.dumps({"pattern": ".", "definition": {"message-tll": 5}}).encode()
    request = Request(address, body, {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}, method="PUT")
    with pytest.raises(HTTPError) as refused:
        urlopen(request, timeout=30)
    said = json.loads(refused.value.read())
    assert '[{<<"message-tll">>,5}] are not recognised policy settings' in said["reason"]
    assert "there is no policy key 'message-tll' (did you mean 'message-ttl'?)" in said["says"]


def test_the_port_of_amqp_is_named(say: Say, broker: BrokerProcess) -> None:
    code, _, wrong = say("queue", "list", url=f"http://127.0.0.1:{broker.port}")
    assert (code, "is a port of AMQP" in wrong) == (1, True)
