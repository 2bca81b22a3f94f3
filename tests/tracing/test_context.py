"""Which messages are traced: what W3C Trace Context says is right, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from amqpd.message.propertylist import HEADERS
from amqpd.tracing.context import PROPERTIES_BYTES_MAX, STATE_BYTES_MAX, contents_of, may_be_sampled
from amqpd.wire.fieldwriter import join_table, write_value

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def properties(headers: dict[str, Any], **others: Any) -> bytes:
    return commands.Basic.Properties(headers=headers, **others).marshal()


def written(*entries: tuple[bytes, bytes]) -> bytes:
    return HEADERS.to_bytes(2, "big") + join_table(list(entries))


def test_a_sampled_traceparent_is_read() -> None:
    found = contents_of(properties({"traceparent": PARENT}, message_id="m", correlation_id="c"))
    assert found is not None
    assert found.context == (int(TRACE, 16), int(SPAN, 16), 1, b"")
    assert (found.message_id, found.correlation_id) == (b"m", b"c")


@pytest.mark.parametrize(
    "parent",
    [
        f"00-{TRACE}-{SPAN}-00",  # not sampled
        f"00-{TRACE}-{SPAN}-02",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",  # of a later version only
        f"01-{TRACE}-{SPAN}-01more",
        f"01-{TRACE}-{SPAN}-01-" + "x" * 300,
        f"00-{TRACE}-{SPAN[1:]}-01",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}",
        "",
        1,
        None,
        {"traceparent": PARENT},
        [PARENT],
    ],
)
def test_anything_else_is_no_context(parent: Any) -> None:
    assert contents_of(properties({"traceparent": parent})) is None


def test_only_headers_count() -> None:
    assert contents_of(properties({"other": f"\x0btraceparentS\0\0\0\x37{PARENT}"})) is None
    assert contents_of(properties({}, message_id=f"\x0btraceparentS\0\0\0\x37{PARENT}")) is None
    assert contents_of(properties({"deep": {"traceparent": PARENT}})) is None
    assert contents_of(b"\0\0") is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    found = contents_of(properties({"traceparent": f"01-{TRACE}-{SPAN}-0b-more"}))
    assert found is not None
    assert found.context == (int(TRACE, 16), int(SPAN, 16), 1, b"")


def test_octets_are_a_text_too() -> None:
    octets = b"x" + len(PARENT).to_bytes(4, "big") + PARENT.encode()
    assert contents_of(written((b"traceparent", octets))) is not None


def test_two_are_none() -> None:
    value = write_value(PARENT)
    assert contents_of(written((b"traceparent", value))) is not None
    assert contents_of(written((b"traceparent", value), (b"traceparent", value))) is None


def test_what_does_not_read_is_no_context_and_no_error() -> None:
    whole = written((b"traceparent", write_value(PARENT)), (b"z", write_value("zz")))
    for end in range(2, len(whole)):
        assert contents_of(whole[:end]) is None


@pytest.mark.parametrize(
    ("state", "kept"),
    [("a=1", True), ("x" * STATE_BYTES_MAX, True), ("x" * (STATE_BYTES_MAX + 1), False), (7, False)],
)
def test_a_tracestate_goes_with_it(state: Any, kept: bool) -> None:
    found = contents_of(properties({"traceparent": PARENT, "tracestate": state}))
    assert found is not None
    assert found.context.state == (state.encode() if kept else b"")


def test_very_long_properties_are_not_taken_apart() -> None:
    def of(size: int) -> bytes:
        return properties({"traceparent": PARENT, "long": "x" * size})

    extra = len(of(0))
    assert contents_of(of(PROPERTIES_BYTES_MAX - extra)) is not None
    assert contents_of(of(PROPERTIES_BYTES_MAX - extra + 1)) is None


def test_the_look_for_one_sees_them_among_whole_messages() -> None:
    sampled = properties({"traceparent": PARENT})
    assert may_be_sampled(b"before" + sampled + b"behind")
    assert not may_be_sampled(properties({"traceparent": PARENT[:-1] + "0"}) + b"traceparent")
