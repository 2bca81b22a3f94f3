"""Dead letters of messages that differ in nothing but their expiration: made once, then copied.

What comes in: a message and the dead letter that was made of it; further messages. What goes out: their dead letters,
if they are alike.
Rules: 1. Alike is byte for byte: method frame, properties except the digits of the expiration, which have the same
number. So the dead letter is the first one's with other digits and another body. 2. A template is good for the second
that stands in the dead letter, for one settings, and for one state of the topology. 3. Where the digits cannot be
found in the dead letter beyond doubt, there is no template. 4. Making one costs a second dead letter: where nothing
is alike, one a second is made.
Not here: what a dead letter says (`deadletters.py`), where it goes (`amqpd/publishing/dead_lettering.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.message.propertylist import EXPIRATION, FLAGS, PropertyList
from amqpd.message.rewriting import with_properties
from amqpd.queues.settings import QueueSettings

Target = TypeVar("Target")
"""a queue, as the caller knows it"""

# Stands for a digit; no number has it.
_BLANK = b"\x7f"


class TemplateState(NamedTuple):
    """The second, the state of the topology and the settings for which a template is good."""

    second: int
    topology_version: int
    settings: QueueSettings


class Template(Generic[Target]):
    """A dead letter without its body and digits, from which those of messages that are alike are copied."""

    __slots__ = ("_dead_letter", "_ends", "_method", "_size", "_state", "properties", "targets", "used")

    def __init__(
        self,
        state: TemplateState,
        run: Run,
        ends: tuple[bytes, bytes],
        dead_letter: tuple[bytes, bytes, int, int],
        properties: Properties,
        targets: Sequence[Target],
    ) -> None:
        """`ends` are the raw properties before and behind the digits; `dead_letter` the dead letter's frames before
        the body, before and behind the digits, and how large its method and header frames are. The body is not
        kept."""
        self._state = state
        self._method = run.data[run.start : run.start + run.method_size]
        self._ends = ends
        self._size = run.header_size
        self._dead_letter = dead_letter
        self.properties = properties
        """the dead letter's"""
        self.targets = targets
        self.used = False
        """something was alike"""

    def good_for(self, state: TemplateState) -> bool:
        return state == self._state

    def copy(self, run: Run, low: int, state: TemplateState) -> Run | None:
        """The dead letter of message `low` of the run, if it is alike."""
        data, start, stride = run.data, run.start, run.stride
        header_at = start + run.method_size
        before, behind = self._ends
        low_at, high_at = header_at + 19, header_at + run.header_size - 1
        digits_at, digits_end = low_at + len(before), high_at - len(behind)
        if (
            run.header_size != self._size
            or state != self._state
            or not data.startswith(self._method, start)
            or not data.startswith(before, low_at)
            or not data.startswith(behind, digits_end)
        ):
            return None
        self.used = True
        head, tail, method_size, header_size = self._dead_letter
        at = start + low * stride
        body = data[at + run.method_size + run.header_size : at + stride]
        size = run.body_size
        # The size stands eleven bytes into the content header frame.
        size_at = method_size + 11
        head = head[:size_at] + size.to_bytes(8, "big") + head[size_at + 8 :]
        joined = b"".join((head, data[digits_at:digits_end], tail, body))
        return Run(joined, 0, len(joined), 1, method_size, header_size, size, run.body_frames)


def template_of(
    state: TemplateState,
    run: Run,
    properties: Properties,
    targets: Sequence[Target],
    dead_letter_from: Callable[[Run], Run],
) -> Template[Target] | None:
    """The template for messages like the run's. `properties` are the dead letter's, `dead_letter_from` makes a run's
    dead letter."""
    raw = run.properties
    fields = PropertyList(raw).fields
    if EXPIRATION not in fields:
        return None
    at = 3 + sum(len(fields[flag]) for flag in FLAGS if flag > EXPIRATION and flag in fields)
    size = len(fields[EXPIRATION]) - 1
    blanks = _BLANK * size
    dead_letter = dead_letter_from(with_properties(run.part(0, 1), raw[:at] + blanks + raw[at + size :]))
    frames = dead_letter.data[: dead_letter.method_size + dead_letter.header_size]
    if frames.count(blanks) != 1:
        return None
    head, _, tail = frames.partition(blanks)
    return Template(
        state,
        run,
        (raw[:at], raw[at + size :]),
        (head, tail, dead_letter.method_size, dead_letter.header_size),
        properties,
        targets,
    )
