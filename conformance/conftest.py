"""The fixtures of the conformance suite.

What comes in: AMQPD_TEST_URL or AMQPD_TEST_BROKER, as `broker.py` says. What goes out: `broker`, `connection`,
`channel`, `connect`, `wire`, `client`, `unique`, `admin`.
Rules: 1. Tests share one broker, so every name comes from `unique`, which deletes it at the end. 2. What a test
opened is closed before its names are deleted. 3. A difference that a mark names is expected, strictly.
Not here: the marks (`rules.py`), what happens with the outcomes (`outcomes.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pika
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel

from conformance.admin import Admin, admin_of
from conformance.broker import Broker, running_broker
from conformance.outcomes import PROPERTY, Recorder
from conformance.rules import applies
from tests.clients.brokers import Connect, connections
from tests.clients.wire import METHOD, Wire, frame_bytes, short_string

OpenWire = Callable[..., Wire]
# Everything in them waits for the broker's own time.
SLOW_FILES = frozenset({"test_ext_expires"})


def pytest_configure(config: pytest.Config) -> None:
    # Workers report to the process that started them; only that one writes.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(), "conformance-outcomes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem in SLOW_FILES:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _expected_differences(request: pytest.FixtureRequest, broker: Broker) -> None:
    request.node.user_properties.append((PROPERTY, [broker.name, broker.version]))
    for mark in request.node.iter_markers("differs"):
        if applies(mark.kwargs["on"], broker) and not mark.kwargs["asserted"]:
            request.applymarker(pytest.mark.xfail(reason=mark.kwargs["why"], strict=True))


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


@pytest.fixture(scope="session")
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
def connect(broker: Broker, unique: Names) -> Iterator[Connect]:
    """Opens further pika connections: `connect(heartbeat=5)` changes that attribute of the parameters."""
    with connections(broker.url) as connect:
        yield connect


@pytest.fixture
def connection(connect: Connect) -> pika.BlockingConnection:
    return connect()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    return connection.channel()


@pytest.fixture
def wire(broker: Broker, unique: Names) -> Iterator[OpenWire]:
    """Opens raw-frame clients: `wire()` with the whole handshake behind it, `wire(handshake=False)` bare; further
    arguments are those of `Wire.open` and `timeout_s`. All sockets are closed at the end."""
    opened: list[Wire] = []

    def open_wire(**options: object) -> Wire:
        wire = broker.open_wire(**options)  # type: ignore[arg-type]
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
