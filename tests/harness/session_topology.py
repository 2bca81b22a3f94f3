"""A session of the fuzz tests declares, binds, deletes and purges.

What comes in: the model of the session, a channel. What goes out: frames, and the model changed.
Rule: everything is valid, and what was just declared is used on its own channel only (`session_model.py`).
Not here: what is published and consumed (`session_contents.py`, `sessions.py`).
"""

from __future__ import annotations

from typing import Any

from pamqp import commands

from tests.harness.session_choices import (
    CLASSIC_ARGUMENTS,
    EXCHANGE_ARGUMENTS,
    EXCHANGE_TYPES,
    QUEUE_ARGUMENTS,
    QUORUM_ARGUMENTS,
    WORDS,
)
from tests.harness.session_model import SessionModel


class TopologySession(SessionModel):
    def _arguments(self) -> dict[str, Any]:
        """Arguments that mean nothing to a queue, of every type that a table can hold."""
        values: tuple[Any, ...] = (
            1,
            -5,
            2**40,
            True,
            None,
            "text",
            2.5,
            bytearray(b"\xff\xfe"),
            ["a", 1],
            {"b": {"c": []}},
        )
        return {f"k{n}": self.random.choice(values) for n in range(self.random.randint(0, 3))}

    def _some_queue(self, channel: int) -> str:
        while not (usable := [name for name in self.queues if self._fresh.get(name, channel) == channel]):
            self._declare_queue(channel)
        return self.random.choice(usable[-3:])

    def _some_exchange(self, channel: int) -> str:
        while not (usable := [name for name in self.exchanges if self._fresh.get(name, channel) == channel]):
            self._declare_exchange(channel)
        return self.random.choice(usable[-3:])

    def _declare_queue(self, channel: int) -> None:
        if self._chance(0.1):
            self._send(commands.Queue.Declare(queue="", exclusive=True), channel)
            return
        name = self._new_name("q")
        options = {option: self._chance(0.3) for option in ("durable", "exclusive", "auto_delete")}
        nowait = self._chance(0.2)
        arguments = self._arguments()
        if self._chance(0.6):
            quorum = self._chance(0.3)
            if quorum:
                options = {"durable": True, "exclusive": False, "auto_delete": False}
                arguments["x-queue-type"] = "quorum"
                self.quorum.add(name)
            for some in (QUEUE_ARGUMENTS, QUORUM_ARGUMENTS if quorum else CLASSIC_ARGUMENTS):
                if self._chance():
                    arguments |= self.random.choice(some)
            if self._chance(0.7):
                exchanges = [known for known in self.exchanges if self._fresh.get(known, channel) == channel]
                arguments["x-dead-letter-exchange"] = self.random.choice(("", "amq.fanout", "gone", *exchanges))
                if self._chance():
                    arguments["x-dead-letter-routing-key"] = self.random.choice((*WORDS, *self.queues))
            elif "x-dead-letter-strategy" in arguments:
                arguments["x-dead-letter-exchange"] = ""
        for argument in arguments:
            self.made[f"argument {argument}"] += argument.startswith("x-")
        self._send(commands.Queue.Declare(0, name, nowait=nowait, arguments=arguments, **options), channel)
        self.queues[name], self._fresh[name] = options, channel

    def _declare_queue_again(self, channel: int) -> None:
        self._send(commands.Queue.Declare(queue=self._some_queue(channel), passive=True), channel)

    def _declare_exchange(self, channel: int) -> None:
        name, kind = self._new_name("x"), self.random.choice(EXCHANGE_TYPES)
        arguments: dict[str, Any] = {"alternate-exchange": "amq.fanout"} if self._chance(0.2) else {}
        arguments |= self.random.choice(EXCHANGE_ARGUMENTS.get(kind, ({},)))
        self.made[f"type {kind}"] += 1
        self._send(
            commands.Exchange.Declare(
                exchange=name,
                exchange_type=kind,
                durable=self._chance(),
                nowait=self._chance(0.2),
                arguments=arguments,
            ),
            channel,
        )
        self.exchanges[name], self._fresh[name] = kind, channel

    def _bind(self, channel: int) -> None:
        exchange, queue = self._some_exchange(channel), self._some_queue(channel)
        arguments: dict[str, Any] = {}
        if self.exchanges[exchange] == "headers":
            arguments = {"x-match": self.random.choice(("all", "any")), "h": self.random.choice((1, "a"))}
        key = self.random.choice(WORDS)
        if self.exchanges[exchange] == "x-consistent-hash":
            key = self.random.choice(("1", "20", "10000"))
        unbind = self._chance(0.2)
        if unbind:
            self._send(commands.Queue.Unbind(0, queue, exchange, key, arguments), channel)
        else:
            nowait = self._chance(0.2)
            self._send(commands.Queue.Bind(0, queue, exchange, key, nowait, arguments), channel)

    def _bind_exchange(self, channel: int) -> None:
        source, destination = self._some_exchange(channel), self._some_exchange(channel)
        key = "3" if self.exchanges[source] == "x-consistent-hash" else "a"
        if self._chance(0.3):
            self._send(commands.Exchange.Unbind(0, destination, source, key, False, {}), channel)
        else:
            self._send(commands.Exchange.Bind(0, destination, source, key, False, {}), channel)

    def _delete_exchange(self, channel: int) -> None:
        exchange = self._some_exchange(channel)
        del self.exchanges[exchange]
        self._send(commands.Exchange.Delete(exchange=exchange), channel)

    def _delete_queue(self, channel: int) -> None:
        queue = self._some_queue(channel)
        self._forget_queue(queue)
        self._send(commands.Queue.Delete(queue=queue), channel)

    def _purge(self, channel: int) -> None:
        self._send(commands.Queue.Purge(queue=self._some_queue(channel)), channel)
