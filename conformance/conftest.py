"""The fixtures of the conformance suite.

What comes in: AMQPD_TEST_URL or AMQPD_TEST_BROKER, as `broker.py` says; AMQPD_TEST_CLUSTER, how many forwarders there
are to be instead, and AMQPD_TEST_CLUSTER_SEED; AMQPD_TEST_ANY_NODE, if each connection goes to another one of these;
AMQPD_TEST_QUEUE_TYPE, of queues whose declarations name no type: `quorum` (of several forwarders, if it says nothing)
or `classic` (of one). What goes out: `broker`, `connection`, `channel`, `connect`, `wire`, `client`, `unique`,
`admin`.
Rules: 1. Tests share one broker, so every name comes from `unique`, which deletes it at the end. 2. What a test
opened is closed before its names are deleted. 3. A difference that a mark names is expected, strictly. 4. Of several
forwarders a file asks one, which is drawn from the seed and its name; or each connection does.
Not here: the marks (`rules.py`), what happens with the outcomes (`outcomes.py`).
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pika
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel

from conformance.admin import Admin, admin_of
from conformance.broker import CLASSIC, QUORUM, Broker, running_broker
from conformance.cluster import quorum_by_default, running_cluster
from conformance.outcomes import PROPERTY, Recorder
from conformance.quorum_default import why_different
from conformance.replicated import ReplicatedWire, is_about_exclusive, replicate
from conformance.rules import applies
from tests.clients.brokers import Connect, connections
from tests.clients.wire import METHOD, Wire, frame_bytes, short_string

OpenWire = Callable[..., Wire]
# Everything in them waits for the broker's own time.
SLOW_FILES = frozenset({"test_ext_expires"})
CLUSTER, SEED, ANY_NODE = "AMQPD_TEST_CLUSTER", "AMQPD_TEST_CLUSTER_SEED", "AMQPD_TEST_ANY_NODE"
QUEUE_TYPE = "AMQPD_TEST_QUEUE_TYPE"
# What a node is told to do of its own: the firehose copies what clients of that node publish and get.
OF_ONE_NODE = frozenset({"test_ext_firehose"})
EXPECTED_SILENCE_S = 5.0
"""where a refusal is known not to come"""


def pytest_configure(config: pytest.Config) -> None:
    # Workers report to the process that started them; only that one writes.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(), "conformance-outcomes")
        if os.environ.get(CLUSTER) and not os.environ.get(SEED):
            os.environ[SEED] = str(random.SystemRandom().randrange(2**32))  # for all workers


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if forwarders := os.environ.get(CLUSTER):
        seed = os.environ[SEED]
        terminalreporter.write_line(
            f"{forwarders} forwarders, {queue_type()} queues; the leader of each file again with {SEED}={seed}"
        )


def queue_type() -> str:
    """Of queues whose declarations name none."""
    found = os.environ.get(QUEUE_TYPE) or (QUORUM if os.environ.get(CLUSTER) else CLASSIC)
    assert found in (CLASSIC, QUORUM), f"{QUEUE_TYPE}: {CLASSIC} or {QUORUM}, not {found}"
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem in SLOW_FILES:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def _brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Broker]]:
    directory = tmp_path_factory.mktemp("broker")
    if forwarders := os.environ.get(CLUSTER):
        with running_cluster(
            directory, int(forwarders), queue_type(), any_node=bool(os.environ.get(ANY_NODE))
        ) as brokers:
            yield brokers
    else:
        with running_broker(directory) as broker:
            yield [quorum_by_default(broker, directory) if queue_type() == QUORUM else broker]


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, _brokers: list[Broker]) -> Broker:
    draws = random.Random(f"{os.environ.get(SEED)} {request.path.stem}")
    chosen = draws.choice(_brokers)
    if not os.environ.get(ANY_NODE) or request.path.stem in OF_ONE_NODE:
        return chosen
    return replace(chosen, nodes=tuple([each.url for each in _brokers]), draws=draws)


@pytest.fixture(autouse=True)
def _expected_differences(request: pytest.FixtureRequest, broker: Broker) -> None:
    product = broker.name
    if broker.queue_type == QUORUM:
        product += "-quorum"
    elif broker.forwarder:
        product += "-cluster"
    request.node.user_properties.append((PROPERTY, [product, broker.version]))
    for mark in request.node.iter_markers("differs"):
        if applies(mark.kwargs["on"], broker) and not mark.kwargs["asserted"]:
            request.applymarker(pytest.mark.xfail(reason=mark.kwargs["why"], strict=True))
    why = why_different(request.node.nodeid) if broker.queue_type == QUORUM else None
    if why is not None:
        request.applymarker(pytest.mark.xfail(reason=why, strict=True))


class Names:
    """Names that nobody else uses: `unique("queue")`. `str(unique)` is what they begin with."""

    def __init__(self) -> None:
        self._prefix = f"conf.{uuid.uuid4().hex[:10]}"
        self.given: list[str] = []

    def __call__(self, word: str = "name") -> str:
        """The same word gives the same name."""
        name = f"{self._prefix}.{word}"
        if name not in self.given:
            self.given.append(name)
        return name

    def __str__(self) -> str:
        return self._prefix


@pytest.fixture(scope="module")
def _cleaner(broker: Broker) -> Iterator[Wire]:
    with broker.open_wire() as wire:
        wire.open_channel()
        yield wire
        wire.close()


@pytest.fixture
def unique(_cleaner: Wire) -> Iterator[Names]:
    """Names for this test; the queues and exchanges that it gave them to are deleted at the end."""
    names = Names()
    yield names
    for name in names.given:
        for delete in (commands.Queue.Delete, commands.Exchange.Delete):
            _cleaner.send_bytes(_named(delete.index, name))
            answer = _cleaner.read_method()[1]
            if isinstance(answer, commands.Channel.Close):
                # Exclusive, and its connection is about to end: it goes with that.
                assert answer.reply_code == 405, answer.reply_text
                _cleaner.send(commands.Channel.CloseOk(), channel=1)
                _cleaner.open_channel()


def _named(index: int, name: str) -> bytes:
    """A deletion by hand: pamqp refuses to send names with characters, or a length, that RabbitMQ takes."""
    return frame_bytes(METHOD, index.to_bytes(4, "big") + b"\0\0" + short_string(name) + b"\0")


@pytest.fixture
def _replicates(request: pytest.FixtureRequest, broker: Broker) -> bool:
    """Its queues are made quorum queues."""
    return broker.queue_type == QUORUM and not is_about_exclusive(request.node.nodeid)


@pytest.fixture
def connect(broker: Broker, unique: Names, _replicates: bool) -> Iterator[Connect]:
    """Opens further pika connections: `connect(heartbeat=5)` changes that attribute of the parameters."""
    with connections(broker.address) as connect:
        yield (lambda **changes: replicate(connect(**changes), unique)) if _replicates else connect


@pytest.fixture
def connection(connect: Connect) -> pika.BlockingConnection:
    return connect()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    return connection.channel()


@pytest.fixture
def wire(request: pytest.FixtureRequest, broker: Broker, unique: Names, _replicates: bool) -> Iterator[OpenWire]:
    """Opens raw-frame clients: `wire()` with the whole handshake behind it, `wire(handshake=False)` bare; further
    arguments are those of `Wire.open` and `timeout_s`. All sockets are closed at the end."""
    opened: list[Wire] = []
    given: dict[str, object] = {}
    if _replicates:
        given["of"] = type("NamedWire", (ReplicatedWire,), {"new_name": staticmethod(unique)})
        if why_different(request.node.nodeid) is not None:
            given["timeout_s"] = EXPECTED_SILENCE_S

    def open_wire(**options: object) -> Wire:
        wire = broker.open_wire(**{**given, **options})  # type: ignore[arg-type]
        opened.append(wire)
        return wire

    yield open_wire
    for each in opened:
        each.socket.close()


@pytest.fixture
def client(wire: OpenWire) -> Wire:
    """A raw-frame client whose channel 1 is open."""
    client = wire()
    client.open_channel()
    return client


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    """Commands on the broker; what they made is taken away at the end."""
    admin = admin_of(broker)
    if admin is None:
        pytest.skip("needs the broker's command line; only an address was given")
    try:
        yield admin
    finally:
        admin.clean_up()
