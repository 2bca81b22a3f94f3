"""Definition files between brokers that run: from RabbitMQ to amqpd, back again, and under open connections."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pamqp import commands

from . import address
from .broker_process import REPOSITORY, BrokerProcess
from .rabbitmq_process import NODE_NAME, SCRIPTS, RabbitMQProcess
from .wire import Wire, described, publish_bytes

Basic, Confirm, Exchange, Queue = commands.Basic, commands.Confirm, commands.Exchange, commands.Queue
Command = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("definitions") / "data")
    try:
        broker.start()
        yield broker
        assert broker.terminate() == 0
        assert "Traceback" not in broker.log
    finally:
        broker.close()


@pytest.fixture(scope="module")
def command(broker: BrokerProcess) -> Command:
    def run(*words: str, code: int = 0, given: Any = None) -> str:
        line = [sys.executable, "-m", "amqpd", *words, "--data-dir", str(broker.data_dir)]
        done = subprocess.run(
            line,
            check=False,
            cwd=REPOSITORY,
            env=broker.child_environment(),
            capture_output=True,
            input=None if given is None else json.dumps(given),
            text=True,
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    return run


def connected(broker: BrokerProcess, vhost: str = "/", user: str = "guest", password: str = "guest") -> Wire:
    wire = Wire(broker.port)
    wire.open(user=user, password=password, vhost=vhost)
    wire.open_channel()
    return wire


def of(vhost: str = "/", **item: Any) -> dict[str, Any]:
    return {"vhost": vhost, **item}


class Rabbit:
    def __init__(self, process: RabbitMQProcess) -> None:
        self.process = process

    def ctl(self, *words: str) -> str:
        return subprocess.run(
            [str(SCRIPTS / "rabbitmqctl"), "-q", "-n", NODE_NAME, *words],
            check=True,
            env=self.process.child_environment(),
            capture_output=True,
            text=True,
        ).stdout

    def imported(self, file: Path) -> None:
        self.ctl("import_definitions", str(file))

    def exported(self, file: Path) -> dict[str, Any]:
        self.ctl("export_definitions", str(file))
        found: dict[str, Any] = json.loads(file.read_text())
        return found


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    if shutil.which("rabbitmqctl") is None or not (SCRIPTS / "rabbitmq-server").exists():
        pytest.skip("needs Debian's rabbitmq-server")
    process = RabbitMQProcess(tmp_path_factory.mktemp("rabbitmq"))
    try:
        process.start()
        yield Rabbit(process)
    finally:
        process.close()


SETUP = {
    "users": [
        {"name": "alice", "password": "alice's", "tags": "administrator,monitoring", "limits": {"max-channels": 9}},
        {"name": "bob", "password": "bob's", "tags": ""},
    ],
    "vhosts": [{"name": "shop", "metadata": {"description": "the shop", "tags": ["a"]}}],
    "permissions": [
        of("shop", user="alice", configure=".*", write=".*", read=".*"),
        of("shop", user="bob", configure="^$", write="^in$", read=".*"),
    ],
    "topic_permissions": [of("shop", user="bob", exchange="in", write="^a", read="^b")],
    "parameters": [of("shop", component="vhost-limits", name="limits", value={"max-queues": 100})],
    "global_parameters": [{"name": "cluster_name", "value": "rabbit's"}],
    "policies": [
        of("shop", name="cap", pattern="^q", definition={"max-length": 10}, priority=1, **{"apply-to": "queues"})
    ],
}


def create_by_pika(rabbit: Rabbit) -> None:
    credentials = pika.PlainCredentials("alice", "alice's")
    parameters = pika.ConnectionParameters(address.HOST, rabbit.process.port, "shop", credentials)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        arguments = {"x-message-ttl": 60_000, "x-overflow": "reject-publish", "note": "naïve", "bytes": b"\xff\xfe"}
        channel.queue_declare("q1", durable=True, arguments=arguments)
        channel.queue_declare("q2", durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_declare("transient")
        channel.queue_declare("mine", exclusive=True)
        channel.exchange_declare("in", "topic", durable=True, arguments={"alternate-exchange": "spare"})
        channel.exchange_declare("spare", "fanout", durable=True)
        channel.exchange_declare("hidden", "headers", durable=True, internal=True)
        for queue, key in (("q1", "a.#"), ("q2", "b"), ("transient", "#"), ("mine", "x")):
            channel.queue_bind(queue, "in", key)
        channel.queue_bind("q1", "amq.headers", "", arguments={"x-match": "any", "n": 5})
        channel.exchange_bind("hidden", "in", "h")


@pytest.mark.slow
def test_a_broker_moves_from_rabbitmq_with_its_passwords_and_back(
    rabbit: Rabbit, broker: BrokerProcess, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "setup.json").write_text(json.dumps(SETUP))
    rabbit.imported(tmp_path / "setup.json")
    rabbit.ctl("set_operator_policy", "-p", "shop", "op", "^q", '{"max-length":20}', "--apply-to", "queues")
    create_by_pika(rabbit)
    theirs = rabbit.exported(tmp_path / "theirs.json")
    command("definitions", "import", str(tmp_path / "theirs.json"))
    with connected(broker, "shop", "alice", "alice's") as wire:
        wire.call(Confirm.Select(), channel=1)
        for key in ("a.1", "a.2", "b"):
            wire.send_bytes(publish_bytes(1, "in", key, b"moved"))
            assert isinstance(wire.read_method()[1], Basic.Ack)
        # The transient queue came too: the broker was running.
        for queue, count in (("q1", 2), ("q2", 1), ("transient", 3)):
            ok = wire.call(Queue.Declare(queue=queue, passive=True), channel=1)
            assert ok.message_count == count, described(ok)
        close = wire.call(Queue.Declare(queue="mine", passive=True), channel=1)
        assert close.reply_code == 404
    with connected(broker, "shop", "bob", "bob's") as wire:
        close = wire.call(Queue.Declare(queue="other"), channel=1)
        assert close.reply_code == 403
    # Again changes nothing, and what goes out says of everybody and everything what came in.
    command("definitions", "export", str(tmp_path / "ours.json"))
    plan = command("definitions", "import", str(tmp_path / "ours.json"), "--prune")
    assert plan.startswith("nothing to change; ")
    ours = json.loads((tmp_path / "ours.json").read_text())
    for section in ("users", "permissions", "topic_permissions", "policies", "queues", "exchanges", "bindings"):
        left_out = [item for item in theirs[section] if "hidden" in item.values()]
        for item in theirs[section]:
            assert item in ours[section] or item in left_out, (section, item)
    # And RabbitMQ takes it back.
    rabbit.imported(tmp_path / "ours.json")
    again = rabbit.exported(tmp_path / "again.json")
    for section in ("users", "queues", "bindings", "policies"):
        for item in theirs[section]:
            assert item in again[section], (section, item)


@pytest.mark.slow
def test_an_import_meets_what_only_the_running_broker_knows(broker: BrokerProcess, command: Command) -> None:
    with connected(broker) as wire:
        wire.call(Queue.Declare(queue="live"), channel=1)
        wire.call(Queue.Declare(queue="exclusive", exclusive=True), channel=1)
        wire.call(Exchange.Declare(exchange="fading", exchange_type="fanout", durable=True), channel=1)
        wire.call(Queue.Bind(queue="exclusive", exchange="fading"), channel=1)
        file = {"queues": [of(name="live"), of(name="exclusive"), of(name="new")]}
        errors = command("definitions", "import", "-", given=file, code=1)
        assert "! queue 'live' in '/': durable is false here, true in the file" in errors
        assert "! queue 'exclusive' in '/': a connection has an exclusive one of that name" in errors
        command("definitions", "import", "-", "--skip-conflicts", given=file)
        # An exchange that goes takes the binding of the exclusive queue along, and the queue stays.
        exchanges = {"exchanges": []}
        plan = command("definitions", "plan", "-", "--vhost", "/", "--prune", given=exchanges)
        assert "- exchange 'fading' in '/': with 1 binding\n" in plan
        command("definitions", "import", "-", "--vhost", "/", "--prune", given=exchanges)
        rows = json.loads(command("binding", "list", "--vhost", "/", "--json"))
        assert [row for row in rows if row["source"] == "fading"] == []
        names = {row["name"] for row in json.loads(command("queue", "list", "--vhost", "/", "--json"))}
        assert {"live", "exclusive", "new"} <= names
        wire.call(Queue.Delete(queue="live"), channel=1)
        wire.call(Queue.Delete(queue="new"), channel=1)


def test_transient_things_of_a_file_live_as_long_as_the_broker(command: Command) -> None:
    file = {
        "queues": [of(name="t", durable=False)],
        "exchanges": [of(name="tx", type="direct", durable=False)],
        "bindings": [of(source="tx", destination="t", destination_type="queue", routing_key="k")],
    }
    assert "created 1 exchange, 1 queue, 1 binding" in command("definitions", "import", "-", given=file)
    assert command("definitions", "import", "-", given=file) == "nothing to change; 3 things are as the file says\n"
    exported = json.loads(command("definitions", "export", "-", "--vhost", "/"))
    assert [queue["name"] for queue in exported["queues"]] == ["t"]
    assert [binding["routing_key"] for binding in exported["bindings"]] == ["k"]


@pytest.mark.slow
def test_a_thousand_queues_and_five_thousand_bindings_under_open_connections(
    broker: BrokerProcess, command: Command
) -> None:
    queues = [of("many", name=f"q{number}") for number in range(1000)]
    bindings = [
        of("many", source="x", destination=f"q{number % 1000}", destination_type="queue", routing_key=f"k.{number}")
        for number in range(5000)
    ]
    file = {
        "vhosts": [{"name": "many"}],
        "permissions": [of("many", user="guest", configure=".*", write=".*", read=".*")],
        "exchanges": [of("many", name="x", type="topic")],
        "queues": queues,
        "bindings": bindings,
    }
    with connected(broker) as witness:
        done = command("definitions", "import", "-", given=file)
        assert "created 1 virtual host, 1 permission, 1 exchange, 1,000 queues, 5,000 bindings" in done
        assert isinstance(witness.call(Basic.Qos(prefetch_count=1), channel=1), Basic.QosOk)
    with connected(broker, "many") as wire:
        wire.call(Confirm.Select(), channel=1)
        wire.send_bytes(publish_bytes(1, "x", "k.4321", b"x"))
        assert isinstance(wire.read_method()[1], Basic.Ack)
        assert wire.call(Queue.Declare(queue="q321", passive=True), channel=1).message_count == 1
    command("vhost", "delete", "many")
