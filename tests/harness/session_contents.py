"""A session of the fuzz tests publishes: one message, the same many times, two channels' frames in turn.

What comes in: the model of the session, a channel. What goes out: frames of contents.
Rules: 1. Method, header and body of a content follow each other on their channel. 2. Headers may be hostile, but
nothing in the properties closes the channel.
Not here: properties that do (soft errors, `sessions.py`).
"""

from __future__ import annotations

from typing import Any

from pamqp import body, commands, frame, header

from tests.harness.session_choices import HOSTILE_HEADERS, REPLY_TO, WORDS
from tests.harness.session_topology import TopologySession


class PublishingSession(TopologySession):
    def _publish(self, channel: int) -> None:
        self._frames += self._content(channel)

    def _publish_many(self, channel: int) -> None:
        """The same again and again: what the kernel makes a run of."""
        self.made["run"] += 1
        self._frames += self._content(channel) * self.random.choice((2, 5, 40))

    def _publish_interleaved(self, channel: int) -> None:
        """Two channels' frames in turn (section 4.2.6 allows it)."""
        other = self.random.choice(list(self.channels))
        if other == channel:
            return
        self.made["interleaved"] += 1
        one, two = self._content(channel), self._content(other)
        while one or two:
            frames = self.random.choice([frames for frames in (one, two) if frames])
            self._frames.append(frames.pop(0))

    def _content(self, channel: int) -> list[bytes]:
        random = self.random
        if self.exchanges and self._chance(0.4):
            exchange, key = self._some_exchange(channel), random.choice(WORDS)
        else:
            exchange, key = "", self._some_queue(channel) if self._chance(0.9) else "nobody"
        mandatory = self._chance(0.2)
        data = random.randbytes(random.choice((0, 0, 1, 16, 100, 100, 1000, 5000)))
        properties = self._properties(channel)
        self.made["Basic.Publish"] += 1
        self.made["empty body" if not data else "body"] += 1
        for name in properties:
            self.made[f"property {name}"] += 1
        self.made["mandatory"] += mandatory
        frames = [
            frame.marshal(commands.Basic.Publish(0, exchange, key, mandatory), channel),
            frame.marshal(header.ContentHeader(0, len(data), commands.Basic.Properties(**properties)), channel),
        ]
        size = self.frame_max - 8
        if 1 < len(data) <= 100 and self._chance(0.2):
            size = random.randint(1, len(data))
        pieces = [frame.marshal(body.ContentBody(data[at : at + size]), channel) for at in range(0, len(data), size)]
        if len(pieces) > 1:
            self.made["several body frames"] += 1
        if pieces and self._chance(0.05):
            self.made["empty body frame"] += 1
            pieces.insert(random.randrange(len(pieces)), frame.marshal(body.ContentBody(b""), channel))
        return frames + pieces

    def _properties(self, channel: int) -> dict[str, Any]:
        copies = {"CC": ["a.b", *list(self.queues)[:2]], "BCC": [*list(self.queues)[-1:], "nobody"]}
        choices: dict[str, tuple[Any, ...]] = {
            "delivery_mode": (1, 2, 2),
            "headers": (
                {"h": 1},
                {"h": "a", "n": {"m": [1, None]}},
                {},
                copies,
                {"x-delay": 5, **copies},
                *HOSTILE_HEADERS,
            ),
            "expiration": ("1000", "0", "15", "+20"),
            "user_id": ("guest",),
            "priority": (0, 9),
            "content_type": ("text/plain",),
            "correlation_id": ("1", "2" * 40),
            "reply_to": (REPLY_TO,) if self.channels[channel].replies else ("there",),
            "message_id": ("m",),
        }
        probability = self.random.choice((0.0, 0.2, 0.6))
        return {name: self.random.choice(values) for name, values in choices.items() if self._chance(probability)}
