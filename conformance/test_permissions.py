"""Permissions: who may enter a virtual host, and do what there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp import base, commands

from conformance.admin import Admin
from conformance.broker import Broker
from conformance.conftest import Names, OpenWire
from conformance.rules import differs, rule
from conformance.talk import ask, bodies, check_close, confirmed, consume, publish, refused
from tests.clients.wire import Wire, described

Basic, Channel, Confirm, Connection, Exchange, Queue = (
    commands.Basic,
    commands.Channel,
    commands.Confirm,
    commands.Connection,
    commands.Exchange,
    commands.Queue,
)
WORDING = differs(on="rabbitmq<3.12", why="its text does not say which access was refused", asserted=True)


class Users:
    """A user of this test, who may do what `allow` says and nothing else."""

    def __init__(self, admin: Admin, broker: Broker, wire: OpenWire, name: str) -> None:
        self.admin, self.broker, self.wire, self.name = admin, broker, wire, name
        admin.add_user(name, "secret")

    def allow(self, configure: str = "", write: str = "", read: str = "") -> Wire:
        """A connection of the user, with these permissions from now on."""
        self.admin.set_permissions(self.broker.vhost, self.name, configure, write, read)
        client = self.wire(user=self.name, password="secret")
        client.open_channel()
        return client

    def text(self, access: str, kind: str, name: str) -> str:
        words = "access" if self.broker.is_("rabbitmq<3.12") else f"{access} access"
        resource = f"{kind} '{name}' in vhost '{self.broker.vhost}'"
        return f"ACCESS_REFUSED - {words} to {resource} refused for user '{self.name}'"


@pytest.fixture
def user(admin: Admin, broker: Broker, wire: OpenWire, unique: Names) -> Users:
    return Users(admin, broker, wire, unique("user"))


@pytest.fixture
def things(client: Wire, unique: Names) -> None:
    """A queue and two exchanges, of another user."""
    ask(client, Queue.Declare(queue=unique("q")))
    for name in ("x", "y"):
        ask(client, Exchange.Declare(exchange=unique(name), exchange_type="topic"))
    return


Make = Callable[[Names], base.Frame]
NEEDED: list[tuple[str, Make, tuple[str, str, str]]] = [
    ("queue.declare", lambda u: Queue.Declare(queue=u("new")), ("configure", "queue", "new")),
    ("queue.delete", lambda u: Queue.Delete(queue=u("q")), ("configure", "queue", "q")),
    ("queue.purge", lambda u: Queue.Purge(queue=u("q")), ("read", "queue", "q")),
    ("basic.get", lambda u: Basic.Get(queue=u("q")), ("read", "queue", "q")),
    ("basic.consume", lambda u: Basic.Consume(queue=u("q")), ("read", "queue", "q")),
    (
        "exchange.declare",
        lambda u: Exchange.Declare(exchange=u("new"), exchange_type="direct"),
        ("configure", "exchange", "new"),
    ),
    ("exchange.delete", lambda u: Exchange.Delete(exchange=u("x")), ("configure", "exchange", "x")),
    ("queue.bind", lambda u: Queue.Bind(queue=u("q"), exchange=u("x"), routing_key="k"), ("write", "queue", "q")),
    ("queue.bind", lambda u: Queue.Bind(queue=u("q"), exchange=u("x"), routing_key="k"), ("read", "exchange", "x")),
    ("queue.unbind", lambda u: Queue.Unbind(queue=u("q"), exchange=u("x"), routing_key="k"), ("write", "queue", "q")),
    ("exchange.bind", lambda u: Exchange.Bind(destination=u("y"), source=u("x")), ("write", "exchange", "y")),
    ("exchange.bind", lambda u: Exchange.Bind(destination=u("y"), source=u("x")), ("read", "exchange", "x")),
    (
        "alternate exchange",
        lambda u: Exchange.Declare(
            exchange=u("new"), exchange_type="direct", arguments={"alternate-exchange": u("x")}
        ),
        ("write", "exchange", "x"),
    ),
    (
        "alternate exchange",
        lambda u: Exchange.Declare(
            exchange=u("new"), exchange_type="direct", arguments={"alternate-exchange": u("x")}
        ),
        ("read", "exchange", "new"),
    ),
]


@rule(
    "RabbitMQ: access-control#permissions",
    "Each method needs its permission on each name: 403 without, and done with.",
)
@pytest.mark.parametrize(
    ("make", "need"), [pytest.param(make, need, id=f"{name}: {need[0]} {need[2]}") for name, make, need in NEEDED]
)
@WORDING
def test_what_methods_need(user: Users, things: None, unique: Names, make: Make, need: tuple[str, str, str]) -> None:
    access, kind, word = need
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    # Every name but this one.
    client = user.allow(**{**everything, access: f"^(?!{unique(word)}$)".replace(".", "\\.")})
    refused(client, make(unique), 403, user.text(access, kind, unique(word)))
    client = user.allow(**everything)
    client.send(make(unique), channel=1)
    answer = client.read_method()[1]
    assert not isinstance(answer, Channel.Close), described(answer)


@rule(
    "RabbitMQ: access-control#permissions", "Publishing needs write on the exchange, the default one as amq.default."
)
@pytest.mark.parametrize("exchange", ["", "x"])
@WORDING
def test_publish(user: Users, things: None, unique: Names, exchange: str) -> None:
    name = unique(exchange) if exchange else ""
    client = user.allow(write="^something else$")
    publish(client, name, "k")
    check_close(client.closed(), 403, user.text("write", "exchange", name or "amq.default"))
    client = user.allow(write=f"^{name or 'amq.default'}$".replace(".", "\\."))
    confirmed(client, name, "k")


@rule("RabbitMQ: access-control", "A passive declaration needs no permission to configure.")
def test_passive(user: Users, things: None, unique: Names) -> None:
    client = user.allow(read=".*")
    ask(client, Queue.Declare(queue=unique("q"), passive=True))
    ask(client, Exchange.Declare(exchange=unique("x"), passive=True))


@rule("RabbitMQ: access-control", "Without permissions nobody enters a virtual host: 530.")
def test_no_permission_no_entry(wire: OpenWire, admin: Admin, broker: Broker, unique: Names) -> None:
    user = unique("user")
    admin.add_user(user, "secret")
    text = f"530 NOT_ALLOWED - access to vhost '{broker.vhost}' refused for user '{user}'"
    with pytest.raises(AssertionError) as caught:
        wire(user=user, password="secret")
    assert text in str(caught.value)


@rule("RabbitMQ: access-control", "Names in one virtual host have nothing to do with those in another.")
def test_virtual_hosts_are_apart(wire: OpenWire, client: Wire, admin: Admin, broker: Broker, unique: Names) -> None:
    vhost, queue = unique("vhost"), unique("queue")
    admin.add_vhost(vhost)
    admin.set_permissions(vhost, broker.user, ".*", ".*", ".*")
    other = wire(vhost=vhost)
    other.open_channel()
    ask(client, Queue.Declare(queue=queue))
    refused(
        other, Queue.Declare(queue=queue, passive=True), 404, f"NOT_FOUND - no queue '{queue}' in vhost '{vhost}'"
    )
    ask(other, Queue.Declare(queue=queue, durable=True))
    publish(other, "", queue)
    assert (bodies(other, queue), bodies(client, queue)) == ([b"x"], [])
    ask(other, Exchange.Declare(exchange="amq.topic", exchange_type="topic", durable=True))


@rule("RabbitMQ: access-control#topic-authorisation", "Topic permissions narrow the keys of publishes: 403.")
@WORDING
def test_topic_write(user: Users, things: None, unique: Names, broker: Broker) -> None:
    client = user.allow(write=".*")
    user.admin.set_topic_permissions(broker.vhost, user.name, unique("x"), "^{username}\\.", ".*")
    confirmed(client, unique("x"), f"{user.name}.a")
    publish(client, unique("x"), "other.a")
    close = client.closed()
    words = "access to topic" if broker.is_("rabbitmq<3.12") else "write access to topic"
    check_close(
        close,
        403,
        f"ACCESS_REFUSED - {words} 'other.a' in exchange '{unique('x')}' in vhost '{broker.vhost}' refused for user "
        f"'{user.name}'",
    )


@rule("RabbitMQ: access-control#topic-authorisation", "Topic permissions narrow the keys of bindings: 403.")
def test_topic_read(user: Users, things: None, unique: Names, broker: Broker) -> None:
    client = user.allow(write=".*", read=".*")
    user.admin.set_topic_permissions(broker.vhost, user.name, unique("x"), ".*", "^allowed\\.")
    ask(client, Queue.Bind(queue=unique("q"), exchange=unique("x"), routing_key="allowed.#"))
    refused(client, Queue.Bind(queue=unique("q"), exchange=unique("x"), routing_key="other.#"), 403)
    ask(client, Queue.Bind(queue=unique("q"), exchange=unique("y"), routing_key="other.#"))


@rule("RabbitMQ: validated-user-id", "A user with the tag impersonator may publish under other names.")
def test_impersonator(wire: OpenWire, admin: Admin, broker: Broker, unique: Names) -> None:
    admin.add_user(unique("user"), "secret", tags=["impersonator"])
    admin.set_permissions(broker.vhost, unique("user"), ".*", ".*", ".*")
    client = wire(user=unique("user"), password="secret")
    client.open_channel()
    confirmed(client, "", "nobody", properties=Basic.Properties(user_id="somebody"))


@rule("RabbitMQ: access-control", "A changed password counts for the next log-in; open connections go on.")
def test_a_changed_password(wire: OpenWire, user: Users) -> None:
    client = user.allow(read=".*")
    user.admin.change_password(user.name, "new")
    assert isinstance(client.call(Basic.Qos(), channel=1), Basic.QosOk)
    with pytest.raises(AssertionError, match="403 ACCESS_REFUSED"):
        wire(user=user.name, password="secret")
    wire(user=user.name, password="new")


@rule("RabbitMQ: access-control", "A user whose permissions are cleared does not enter any more.")
def test_cleared_permissions(wire: OpenWire, user: Users, broker: Broker) -> None:
    user.allow(read=".*")
    user.admin.clear_permissions(broker.vhost, user.name)
    with pytest.raises(AssertionError, match="530 NOT_ALLOWED"):
        wire(user=user.name, password="secret")


@rule("RabbitMQ: consumer-cancel", "After update-secret a consumer that may not read any more is cancelled.")
@differs(on="rabbitmq<4", why="it does not look at its consumers again", asserted=True)
def test_update_secret_looks_at_permissions(user: Users, things: None, unique: Names, broker: Broker) -> None:
    client = user.allow(read=".*")
    consume(client, unique("q"))
    user.admin.set_permissions(broker.vhost, user.name, "", "", "^nothing$")
    client.send(Connection.UpdateSecret("secret", "permissions"))
    if broker.is_("rabbitmq<4"):
        client.expect(Connection.UpdateSecretOk)
        return
    seen: dict[str, Any] = {type(method).__name__: method for _, method in (client.read_method() for _ in range(2))}
    assert set(seen) == {"UpdateSecretOk", "Cancel"}
    assert seen["Cancel"].consumer_tag == "c"
