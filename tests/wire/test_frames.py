"""Methods that are written without pamqp are what pamqp would write."""

from __future__ import annotations

import pytest
from pamqp import base, commands, frame
from pamqp.exceptions import AMQPSyntaxError

from amqpd.wire import frames as wire
from tests.harness.harness import Harness

BARE = (
    *(commands.Connection.OpenOk, commands.Connection.CloseOk, commands.Connection.UpdateSecretOk),
    *(commands.Channel.CloseOk, commands.Confirm.SelectOk, commands.Basic.QosOk),
    *(commands.Queue.BindOk, commands.Queue.UnbindOk, commands.Tx.SelectOk, commands.Tx.CommitOk),
    *(commands.Tx.RollbackOk, commands.Exchange.DeclareOk, commands.Exchange.DeleteOk),
    *(commands.Exchange.BindOk, commands.Exchange.UnbindOk, commands.Basic.RecoverOk),
)


@pytest.mark.parametrize("method", BARE, ids=lambda method: method.name)
@pytest.mark.parametrize("channel", [0, 1, 65_535])
def test_methods_that_say_nothing_more(method: type[base.Frame], channel: int) -> None:
    assert wire.method_frame(channel, method()) == frame.marshal(method(), channel)


# Octet for octet what RabbitMQ sends, of the answers with an argument that is reserved: clients read less than the
# specification has.
RESERVED = {
    commands.Connection.OpenOk: "000a 0029 00",
    commands.Channel.OpenOk: "0014 000b 00000000",
    commands.Basic.GetEmpty: "003c 0048 00",
}


@pytest.mark.parametrize("method", RESERVED, ids=lambda method: method.name)
def test_reserved_arguments_are_empty(method: type[base.Frame]) -> None:
    assert wire.method_frame(1, method())[7:-1] == bytes.fromhex(RESERVED[method])


@pytest.mark.parametrize("numbers", [(0, 0, 0), (2047, 131_072, 60), (65_535, 0xFFFFFFFF, 65_535)])
def test_tune(numbers: tuple[int, int, int]) -> None:
    assert wire.tune_frame(*numbers) == frame.marshal(commands.Connection.Tune(*numbers), 0)


@pytest.mark.parametrize("messages", [0, 1, 0xFFFFFFFF])
def test_delete_ok(messages: int) -> None:
    assert wire.delete_ok_frame(7, messages) == frame.marshal(commands.Queue.DeleteOk(messages), 7)


def test_every_connection_is_greeted_alike_and_in_full() -> None:
    harness = Harness()
    for _ in range(2):
        client = harness.client()
        assert client.connection.user == "guest"
    (greeting,) = harness.node.greetings.values()
    _, channel, start = frame.unmarshal(greeting)
    assert (channel, start.mechanisms, start.server_properties) == (0, "PLAIN AMQPLAIN", {"product": "amqpd"})


def test_what_is_read_again_and_again_is_read_once_and_the_memory_is_bounded() -> None:
    for number in range(2 * wire.REMEMBERED_MAX):
        method = commands.Connection.TuneOk(number, 131_072, 60)
        payload = frame.marshal(method, 0)[7:-1]
        assert dict(wire.read_method(payload)) == dict(method)
        assert wire.read_method(payload) is wire.read_method(bytes(bytearray(payload)))
        assert len(wire._known) <= wire.REMEMBERED_MAX


@pytest.mark.parametrize(
    "method",
    [
        commands.Connection.UpdateSecret("secret", "expired"),
        commands.Queue.Declare(queue="q", arguments={"x-expires": 1}),
        commands.Connection.Open("v" * wire.REMEMBERED_BYTES_MAX),
    ],
    ids=lambda method: method.name,
)
def test_secrets_tables_and_long_names_are_not_remembered(method: base.Frame) -> None:
    payload = frame.marshal(method, 0)[7:-1]
    assert wire.read_method(payload) is not wire.read_method(payload)
    assert payload not in wire._known


def test_what_cannot_be_read_is_an_error_each_time() -> None:
    for _ in range(2):
        with pytest.raises(AMQPSyntaxError):
            wire.read_method(b"\x00\x0a\x00\x1f\x07")
