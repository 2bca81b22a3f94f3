"""What a client of the fuzz tests knows of its session: channels, consumers, tags that are open, queues, exchanges.

What comes in: a random generator, a name, what the broker has delivered and closed. What goes out: the state that the
next act depends on, frames that are not taken yet, and `made`, a count of everything that was made.
Rules: 1. What was declared in an act is used on its own channel only, until it is answered. 2. What is forgotten
takes with it what hangs on it: a channel its consumers, the last consumer its auto-delete queue.
Not here: acts, except those on a channel itself (`session_topology.py`, `session_contents.py`, `sessions.py`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pamqp import commands, frame


@dataclass
class ChannelModel:
    mode: str = ""
    consumers: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """consumer tag -> (queue, no_ack)"""
    gets: list[bool] = field(default_factory=list)
    """no_ack of each basic.get that is not answered yet"""
    outstanding: list[int] = field(default_factory=list)
    settled_in_tx: list[int] = field(default_factory=list)
    global_qos: bool = False
    """no quorum queue can be consumed then"""
    replies: str = ""
    """the tag of its consumer of direct replies"""


class SessionModel:
    def __init__(self, random: Random, name: str, rude: bool = False) -> None:
        self.random = random
        self.name = name
        self.rude = rude
        self.made: Counter[str] = Counter()
        self.frame_max = 131_072
        self.channels: dict[int, ChannelModel] = {}
        self.queues: dict[str, dict[str, bool]] = {}
        self.quorum: set[str] = set()
        self.exchanges: dict[str, str] = {}
        self._frames: list[bytes] = []
        self._number = 0
        self._expected_closes: Counter[int] = Counter()
        self._fresh: dict[str, int] = {}
        """declared in this act, and on which channel: a client does not use it on another before it is answered"""

    # What the broker sent

    def delivered(self, channel: int, consumer_tag: str, tag: int) -> None:
        model = self.channels.get(channel)
        if model is not None and not model.consumers.get(consumer_tag, ("", True))[1]:
            model.outstanding.append(tag)

    def got(self, channel: int, tag: int | None) -> None:
        """The answer to a basic.get: a tag, or None for get-empty."""
        model = self.channels.get(channel)
        if model is not None and model.gets and not model.gets.pop(0) and tag is not None:
            model.outstanding.append(tag)

    def channel_closed(self, channel: int) -> None:
        """The broker closed it with an error."""
        if self._expected_closes[channel]:
            self._expected_closes[channel] -= 1
            return
        if channel in self.channels:
            self._forget_channel(channel)
            self._send(commands.Channel.CloseOk(), channel)

    # Frames

    def _send(self, method: Any, channel: int) -> None:
        self.made[method.name] += 1
        self._frames.append(frame.marshal(method, channel))

    def _taken(self) -> list[bytes]:
        frames, self._frames = self._frames, []
        return frames

    def _new_name(self, kind: str) -> str:
        self._number += 1
        return f"{self.name}.{kind}{self._number}"

    def _chance(self, probability: float = 0.5) -> bool:
        return self.random.random() < probability

    # Channels, and what is forgotten with them

    def _open_channel(self, _: int = 0) -> None:
        free = [number for number in (1, 2, 3, 5, 16) if number not in self.channels]
        if free:
            number = self.random.choice(free)
            self.channels[number] = ChannelModel()
            self._send(commands.Channel.Open(), number)

    def _close_channel(self, channel: int) -> None:
        self._forget_channel(channel)
        self._send(commands.Channel.Close(200, "done", 0, 0), channel)

    def _forget_channel(self, channel: int) -> None:
        for tag in list(self.channels[channel].consumers):
            self._forget_consumer(channel, tag)
        del self.channels[channel]

    def _forget_consumer(self, channel: int, tag: str) -> None:
        queue, _ = self.channels[channel].consumers.pop(tag, ("", False))
        if self.queues.get(queue, {}).get("auto_delete"):
            self._forget_queue(queue)

    def _forget_queue(self, queue: str) -> None:
        self.queues.pop(queue, None)
        for model in self.channels.values():
            for tag in [tag for tag, (name, _) in model.consumers.items() if name == queue]:
                del model.consumers[tag]
