"""A dead letter that was copied from a template is, byte for byte, the one that would have been made."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from amqpd.kernel import Run
from amqpd.kernel.rows import parse_row
from amqpd.message.properties import PropertiesReader
from amqpd.queues.deadletters import dead_letter_of
from amqpd.queues.settings import QueueSettings
from amqpd.queues.templates import Template, TemplateState, template_of
from tests.clients.wire import publish_bytes
from tests.harness.kernels import SHAPE

SETTINGS = QueueSettings(dead_letter_exchange="dead", dead_letter_routing_key="over")
STATE = TemplateState(1, 1, SETTINGS)
READ = PropertiesReader().read

properties_of = st.fixed_dictionaries(
    {},
    optional={
        "content_type": st.text("ab", max_size=3),
        "headers": st.dictionaries(
            st.text("xy", min_size=1, max_size=2), st.integers(0, 9) | st.text("1\x7f"), max_size=2
        ),
        "priority": st.integers(0, 9),
        "message_id": st.text("1\x7f", max_size=3),
        "delivery_mode": st.sampled_from((1, 2)),
    },
)


def run_of(body: bytes, expiration: str, properties: dict[str, Any], key: str = "q") -> Run:
    said = commands.Basic.Properties(expiration=expiration, **properties)
    (run,) = parse_row(publish_bytes(1, "", key, body, said))
    return run


def dead_letter_from(run: Run) -> Run:
    return dead_letter_of(run, READ(run.properties), "q", "expired", SETTINGS, 1000).run


def template(run: Run) -> Template | None:
    dead_letter = dead_letter_from(run)
    return template_of(STATE, run, READ(dead_letter.properties), (), dead_letter_from)


@given(
    properties=properties_of,
    numbers=st.tuples(st.integers(1, 99_999), st.integers(1, 99_999)),
    bodies=st.tuples(st.binary(max_size=20), st.binary(max_size=20)),
)
def test_a_copy_is_what_would_have_been_made(
    properties: dict[str, Any], numbers: tuple[int, int], bodies: tuple[bytes, bytes]
) -> None:
    first, second = (run_of(body, str(number), properties) for body, number in zip(bodies, numbers, strict=True))
    made = template(first)
    if made is None:
        assert len(str(numbers[0])) < 4 or "\\x7f" in str(properties)
        return
    copied = made.copy(second, 0, STATE)
    assert (copied is not None) == (len(str(numbers[0])) == len(str(numbers[1])))
    if copied is not None:
        wanted = dead_letter_from(second)
        for name in SHAPE:
            assert getattr(copied, name) == getattr(wanted, name), name


def test_only_what_is_alike_is_copied() -> None:
    made = template(run_of(b"a", "12345", {"priority": 1}))
    assert made is not None
    assert made.copy(run_of(b"b", "54321", {"priority": 1}), 0, STATE) is not None
    others = [
        (run_of(b"b", "54321", {"priority": 2}), STATE),
        (run_of(b"b", "54321", {"priority": 1}, key="r"), STATE),
        (run_of(b"b", "4321", {"priority": 1}), STATE),
        (run_of(b"b", "54321", {"priority": 1, "app_id": "x"}), STATE),
        (run_of(b"b", "54321", {"priority": 1}), TemplateState(2, 1, SETTINGS)),
        (run_of(b"b", "54321", {"priority": 1}), TemplateState(1, 2, SETTINGS)),
        (run_of(b"b", "54321", {"priority": 1}), TemplateState(1, 1, QueueSettings(dead_letter_exchange="dead"))),
    ]
    assert [made.copy(run, 0, state) for run, state in others] == [None] * len(others)


def test_there_is_no_template_without_an_expiration() -> None:
    (run,) = parse_row(publish_bytes(1, "", "q", b"x", commands.Basic.Properties(priority=1)))
    assert template(run) is None
