"""Sessions of a client that knows the protocol, made from a seed: what the fuzz tests mutate.

What comes in: a random generator, a name that keeps the session's queues and exchanges apart from those of others,
and what the broker has delivered so far. What goes out: frames, in the order in which the client sends them, and
`made`, a count of everything that was made.
Rules: 1. A polite session is valid: the broker closes neither the connection nor a channel (a test holds the
generator to that, and to making everything). 2. A rude one makes soft errors too, and answers channel.close as it
should; there must be a queue "witness" of somebody else. 3. Equal seeds and equal deliveries give equal bytes.
Not here: what a session knows (`session_model.py`), declares (`session_topology.py`), publishes
(`session_contents.py`) and chooses from (`session_choices.py`); mutations (`mutations.py`), feeding and judging
(`tests/connection/test_fuzz.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from pamqp import commands, frame, header

from tests.harness.harness import PROTOCOL_HEADER
from tests.harness.session_choices import REPLY_TO, WRONG_PROPERTIES
from tests.harness.session_contents import PublishingSession

HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"


class Session(PublishingSession):
    # Acts, each a list of frames

    def handshake(self) -> list[bytes]:
        random = self.random
        self._frames = [PROTOCOL_HEADER]
        capabilities = {
            name: True
            for name in ("consumer_cancel_notify", "connection.blocked", "authentication_failure_close", "basic.nack")
            if random.random() < 0.8
        }
        properties: dict[str, Any] = {"product": "fuzz", "version": 1.5, "capabilities": capabilities}
        mechanism = random.choice(("PLAIN", "PLAIN", "AMQPLAIN"))
        response = "\0guest\0guest" if mechanism == "PLAIN" else "\5LOGINS\0\0\0\5guest\x08PASSWORDS\0\0\0\5guest"
        self._send(commands.Connection.StartOk(properties, mechanism, response), 0)
        self.frame_max = random.choice((4096, 8192, 131_072, 131_072))
        channel_max = random.choice((16, 2047))
        self._send(commands.Connection.TuneOk(channel_max, self.frame_max, random.choice((0, 1, 60))), 0)
        self._send(commands.Connection.Open(virtual_host="/"), 0)
        for _ in range(random.randint(1, 3)):
            self._open_channel()
        return self._taken()

    def work(self, count: int) -> list[bytes]:
        """`count` things to do, each of one or more frames. What was done before is answered by now."""
        self._fresh = {}
        for _ in range(count):
            if not self.channels:
                self._open_channel()
            (step,) = self.random.choices(_STEPS, _WEIGHTS)
            step(self, self.random.choice(list(self.channels)))
        return self._taken()

    def goodbye(self) -> list[bytes]:
        self._send(commands.Connection.Close(200, "bye", 0, 0), 0)
        return self._taken()

    # Consuming

    def _consume(self, channel: int) -> None:
        queue, tag, no_ack = self._some_queue(channel), self._new_name("t"), self._chance()
        if queue in self.quorum and self.channels[channel].global_qos:
            return
        self._send(
            commands.Basic.Consume(
                0, queue, tag, no_ack=no_ack, nowait=self._chance(0.2), arguments=self._arguments()
            ),
            channel,
        )
        self.channels[channel].consumers[tag] = (queue, no_ack)

    def _consume_replies(self, channel: int) -> None:
        model = self.channels[channel]
        if model.replies:
            self._send(commands.Basic.Cancel(model.replies), channel)
            model.replies = ""
        else:
            model.replies = self._new_name("r")
            self._send(commands.Basic.Consume(0, REPLY_TO, model.replies, no_ack=True), channel)

    def _cancel(self, channel: int) -> None:
        consumers = self.channels[channel].consumers
        tag = self.random.choice(list(consumers)) if consumers else "never"
        if consumers:
            self._forget_consumer(channel, tag)
        self._send(commands.Basic.Cancel(tag, self._chance(0.2)), channel)

    def _get(self, channel: int) -> None:
        queue, no_ack = self._some_queue(channel), self._chance()
        self._send(commands.Basic.Get(queue=queue, no_ack=no_ack), channel)
        self.channels[channel].gets.append(no_ack)

    def _qos(self, channel: int) -> None:
        whole = self._chance(0.3)
        self.channels[channel].global_qos |= whole
        self._send(commands.Basic.Qos(0, self.random.choice((0, 1, 2, 100)), whole), channel)

    def _settle(self, channel: int) -> None:
        """Acknowledge, reject or return something that was delivered."""
        model = self.channels[channel]
        if not model.outstanding:
            return
        at = self.random.randrange(len(model.outstanding))
        tag, multiple, requeue = model.outstanding[at], self._chance(0.4), self._chance()
        settled = model.outstanding[: at + 1] if multiple else [tag]
        model.outstanding = [tag for tag in model.outstanding if tag not in settled]
        if model.mode == "tx":
            model.settled_in_tx += settled
        method: Any = commands.Basic.Ack(tag, multiple)
        if self._chance(0.3):
            method = commands.Basic.Nack(tag, multiple, requeue)
        elif not multiple and self._chance(0.3):
            method = commands.Basic.Reject(tag, requeue)
        self._send(method, channel)

    def _settle_all(self, channel: int) -> None:
        model = self.channels[channel]
        if model.mode == "tx":
            model.settled_in_tx += model.outstanding
        model.outstanding = []
        self._send(self.random.choice((commands.Basic.Ack(0, True), commands.Basic.Nack(0, True, True))), channel)
        # What was delivered and not seen yet is settled too: nothing of it may be settled again.
        self._round_trip(channel)

    def _recover(self, channel: int) -> None:
        self.channels[channel].outstanding = []
        if self._chance():
            self._send(commands.Basic.Recover(True), channel)
        else:
            # By hand: pamqp warns that it is deprecated.
            self.made["Basic.RecoverAsync"] += 1
            self._frames.append(b"\x01" + struct.pack(">HI", channel, 5) + b"\x00\x3c\x00\x64\x01\xce")
        self._round_trip(channel)

    def _round_trip(self, channel: int) -> None:
        """The easy way to know what is delivered: close the channel, which ends all tags."""
        self._close_channel(channel)

    # Modes, flow, connection

    def _select(self, channel: int) -> None:
        model = self.channels[channel]
        if not model.mode:
            model.mode = self.random.choice(("confirm", "confirm", "tx"))
        method: Any = commands.Confirm.Select(self._chance(0.2)) if model.mode == "confirm" else commands.Tx.Select()
        self._send(method, channel)

    def _end_transaction(self, channel: int) -> None:
        model = self.channels[channel]
        if model.mode != "tx":
            return
        if self._chance(0.7):
            self._send(commands.Tx.Commit(), channel)
        else:
            model.outstanding = sorted(model.outstanding + model.settled_in_tx)
            self._send(commands.Tx.Rollback(), channel)
        model.settled_in_tx = []

    def _flow(self, channel: int) -> None:
        self._send(commands.Channel.Flow(True), channel)

    def _heartbeat(self, _: int) -> None:
        self.made["heartbeat"] += 1
        self._frames.append(HEARTBEAT)

    def _update_secret(self, _: int) -> None:
        self._send(commands.Connection.UpdateSecret("guest", "because"), 0)

    # Soft errors

    def _soft_error(self, channel: int) -> None:
        if not self.rude:
            return
        missing = self.name + ".missing"
        wrong: Any = self.random.choice(
            (
                commands.Queue.Declare(queue=missing, passive=True),
                commands.Queue.Bind(0, missing, "amq.direct", "k", False, {}),
                commands.Basic.Consume(queue=missing),
                commands.Basic.Get(queue=missing),
                commands.Basic.Consume(queue="witness"),
                commands.Queue.Purge(queue="witness"),
                commands.Basic.Ack(10**9),
                commands.Basic.Nack(10**9, True),
                commands.Exchange.Declare(exchange="amq.made.up"),
                commands.Exchange.Declare(exchange="amq.direct", exchange_type="fanout"),
                commands.Exchange.Delete(exchange=""),
                commands.Tx.Commit(),
            )
        )
        self.made["soft error"] += 1
        if self._chance(0.3):
            properties = commands.Basic.Properties(**self.random.choice(WRONG_PROPERTIES))
            self._send(commands.Basic.Publish(0, "", "nobody"), channel)
            self._frames.append(frame.marshal(header.ContentHeader(0, 0, properties), channel))
        else:
            self._send(wrong, channel)
        if self._chance(0.5):
            self._frames += self._content(channel)
        self._forget_channel(channel)
        self._expected_closes[channel] += 1
        self._send(commands.Channel.CloseOk(), channel)


Step = Callable[[Session, int], None]
_TABLE: tuple[tuple[Step, int], ...] = (
    (Session._publish, 30),
    (Session._publish_many, 8),
    (Session._publish_interleaved, 8),
    (Session._consume, 8),
    (Session._consume_replies, 2),
    (Session._get, 12),
    (Session._settle, 20),
    (Session._settle_all, 2),
    (Session._recover, 2),
    (Session._cancel, 3),
    (Session._qos, 4),
    (Session._declare_queue, 6),
    (Session._declare_queue_again, 3),
    (Session._declare_exchange, 5),
    (Session._bind, 8),
    (Session._bind_exchange, 3),
    (Session._delete_exchange, 1),
    (Session._delete_queue, 2),
    (Session._purge, 2),
    (Session._select, 6),
    (Session._end_transaction, 6),
    (Session._flow, 2),
    (Session._heartbeat, 2),
    (Session._update_secret, 1),
    (Session._open_channel, 4),
    (Session._close_channel, 2),
    (Session._soft_error, 6),
)
_STEPS = [step for step, _ in _TABLE]
_WEIGHTS = [weight for _, weight in _TABLE]
