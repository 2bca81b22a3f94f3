"""rabbitmqadmin as Debian ships it with RabbitMQ 3.10, and the one that the broker gives away, command by command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from amqpd_admin.cli import rabbitmqadmin
from tests.admin import both_brokers
from tests.admin.compare import Difference, renamed, walk
from tests.admin.conftest import Api
from tests.admin.rabbitmqadmin_commands import ENDED, LISTED, RAW, WRITTEN

PROGRAM = shutil.which("rabbitmqadmin")
installed = pytest.mark.skipif(
    PROGRAM is None, reason="rabbitmqadmin is not installed: it comes with rabbitmq-server"
)

# RabbitMQ tells its statistics each second here, and collects them once more.
STATISTICS_S = 7

STORY = [
    ("declare vhost name=story", "vhost declared"),
    ("declare user name=teller password=secret tags=management", "user declared"),
    ("declare permission vhost=story user=teller configure=.* write=.* read=.*", "permission declared"),
    ("-V story declare exchange name=tales type=topic", "exchange declared"),
    ("-V story declare queue name=ears durable=true", "queue declared"),
    ("-V story declare binding source=tales destination=ears routing_key=once.#", "binding declared"),
    ("-V story publish exchange=tales routing_key=once.upon payload=wolf", "Message published"),
    ("-V story publish exchange=tales routing_key=never payload=x", "Message published but NOT routed"),
    ("-V story get queue=ears ackmode=ack_requeue_true", "wolf"),
    ("-V story list queues name messages", "| ears | 1        |"),
    ("-V story list bindings source destination routing_key", "| tales  | ears        | once.#      |"),
    ("-V story list exchanges name type", "| tales              | topic"),
    ("-V story purge queue name=ears", "queue purged"),
    ('-V story declare policy name=short pattern=^e definition={"max-length":3} apply-to=queues', "policy declared"),
    ("-V story list policies name pattern", "| short | ^e      |"),
    ("-V story delete policy name=short", "policy deleted"),
    (
        "-V story delete binding source=tales destination_type=queue destination=ears properties_key=once.%23",
        "deleted",
    ),
    ("-V story delete exchange name=tales", "exchange deleted"),
    ("-V story delete queue name=ears", "queue deleted"),
    ("list users name tags", "| teller"),
    ("list permissions user vhost", "| teller"),
    ("list vhosts name", "| story"),
    ("list nodes name running", "True"),
    ("list connections name", ""),
    ("list channels name", ""),
    ("list consumers", ""),
    ("list parameters", "No items"),
    ("declare vhost_limit vhost=story name=max-queues value=7", "vhost_limit declared"),
    ("list vhost_limits", "story"),
    ("delete vhost_limit vhost=story name=max-queues", "vhost_limit deleted"),
    ("show overview", "rabbitmq_version"),
    ("delete permission vhost=story user=teller", "permission deleted"),
    ("delete user name=teller", "user deleted"),
    ("delete vhost name=story", "vhost deleted"),
]


def ask(port: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert PROGRAM is not None
    command = [sys.executable, PROGRAM, "-H", "127.0.0.1", "-P", str(port), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def run(api: Api, *arguments: str) -> str:
    done = ask(api.port, *arguments)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


@installed
def test_each_command_does_what_it_says(api: Api):
    for line, said in STORY:
        assert said in run(api, *line.split()), line


@installed
def test_a_broker_is_exported_and_imported(api: Api, tmp_path: Path):
    run(api, "declare", "queue", "name=carried", "durable=true")
    file = tmp_path / "definitions.json"
    run(api, "export", str(file))
    assert "carried" in [each["name"] for each in json.loads(file.read_text())["queues"]]
    run(api, "delete", "queue", "name=carried")
    run(api, "import", str(file))
    assert "carried" in run(api, "list", "queues", "name")
    run(api, "delete", "queue", "name=carried")


@installed
def test_what_is_not_there_is_said(api: Api):
    with pytest.raises(AssertionError, match="Not found"):
        run(api, "delete", "queue", "name=never")


@installed
def test_a_wrong_password_is_said(api: Api):
    with pytest.raises(AssertionError, match="Access refused"):
        run(api, "-u", "guest", "-p", "wrong", "list", "queues")


def said(side: both_brokers.Side, line: str, directory: Path) -> tuple[int, str, str]:
    """Exit code, output and complaint, with the broker's own names replaced."""
    file = str(directory / f"{side.broker.product}.json")
    words = [word.replace("{connection}", side.names["name"]).replace("{file}", file) for word in line.split()]
    done = ask(side.port, *words)
    texts = [renamed(side, each.replace(file, "{file}")) for each in (done.stdout, done.stderr)]
    return done.returncode, *texts  # type: ignore[return-value]


@pytest.mark.slow
@installed
@pytest.mark.skipif(bool(both_brokers.missing()), reason=both_brokers.missing())
def test_every_command_of_its_help_says_the_same_on_both(tmp_path: Path):
    other: list[object] = []
    with both_brokers.both(tmp_path) as sides:
        for side in sides:
            _connect(side)

        def compare(line: str) -> None:
            theirs, ours = (said(side, line, tmp_path) for side in sides)
            if theirs != ours:
                other.append((line, theirs, ours))

        for line in WRITTEN:
            compare(line)
        time.sleep(STATISTICS_S)
        for line in LISTED:
            compare(line)
        for line, route in RAW.items():
            left, right = (
                renamed(side, json.loads(said(side, f"-f raw_json {line}", tmp_path)[1])) for side in sides
            )
            if isinstance(left, list) and line.startswith("show"):
                left, right = left[0], right[0]
            for kind, field, a, b in walk(left, right, ""):
                difference = Difference(f"GET {route}", kind, field, a, b)
                if difference.reason is None:
                    other.append((line, difference))
        for line in ENDED:
            compare(line)
    assert not other, "\n".join(map(str, other))


def _connect(side: both_brokers.Side) -> None:
    """One client, with a consumer."""
    channel = side.connect({"product": "rabbitmqadmin"}).channel()
    channel.queue_declare("heard", durable=True)
    channel.basic_qos(prefetch_count=3)
    channel.basic_consume("heard", lambda *_: None, consumer_tag="hears")
    until = time.monotonic() + STATISTICS_S
    while not (rows := side.ask("GET", "/consumers").json()) and time.monotonic() < until:
        time.sleep(0.2)
    side.names["name"] = rows[0]["channel_details"]["connection_name"]


OURS = Path(rabbitmqadmin.__file__)


def ours(api: Api, *words: str) -> str:
    command = [sys.executable, "-I", "-S", str(OURS), "-H", "127.0.0.1", "-P", str(api.port), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.slow
def test_the_program_at_cli_does_the_same(api: Api, tmp_path: Path):
    """With the same words; it needs nothing but Python (`-I -S`)."""
    for line, said in STORY:
        assert said in ours(api, *line.split()), line
    file = str(tmp_path / "definitions.json")
    ours(api, "declare", "queue", "name=carried", 'arguments={"x-max-length":3}', "--vhost=/")
    assert "Exported" in ours(api, "export", file)
    ours(api, "delete", "queue", "name=carried")
    ours(api, "import", file)
    rows = json.loads(ours(api, "-f", "raw_json", "list", "queues", "name", "arguments"))
    assert {"name": "carried", "arguments": {"x-max-length": 3}} in rows
    ours(api, "delete", "queue", "name=carried")


def test_the_program_at_cli_is_what_the_broker_serves(api: Api, tmp_path: Path):
    with httpx2.Client(base_url=api.url) as client:
        for path in ("/cli", "/cli/"):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["location"]) == (301, "/cli/index.html")
        assert "rabbitmqadmin --help" in client.get("/cli/index.html").text
        fetched = client.get("/cli/rabbitmqadmin")
    assert fetched.content == OURS.read_bytes()
    assert fetched.content.startswith(b"#!/usr/bin/env python3\n")
    config = tmp_path / "rabbitmqadmin.conf"
    config.write_text(f"[default]\nhostname = 127.0.0.1\nport = {api.port}\nusername = guest\npassword = guest\n")
    command = [sys.executable, "-I", "-S", str(OURS), "-c", str(config), "list", "vhosts"]
    assert "| / " in subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("delete queue name=never", "Not found: /api/queues/%2F/never"),
        ("-u guest -p wrong list queues", "Access refused: /api/queues"),
        ("declare queue nme=x", "mandatory argument 'name' is missing"),
        ("declare queue name=x durabel=true", "unknown arguments: durabel"),
        ("declare queue name=x durable=yes", "'yes' is no value of durable"),
        ("declare exchange name=x type=nosuch", "unknown exchange type"),
        ("dance", "there is no command 'dance'"),
    ],
)
def test_what_the_program_at_cli_refuses(api: Api, words: str, said: str):
    with pytest.raises(AssertionError, match=said):
        ours(api, *words.split())
