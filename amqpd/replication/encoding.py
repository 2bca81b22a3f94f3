"""The bytes of messages between forwarders.

What comes in: a message, or the bytes of one. What goes out: its bytes, in pieces; the message.
Rules: 1. In front of each message stand its length and its kind. A kind keeps its number in all versions. 2. What is
not a message of this version raises `MalformedMessage`, and nothing else does. 3. A Hello begins alike in all
versions, and what a later one adds behind its names is passed over: so two versions can say why they do not talk.
Not here: what the messages mean (`messages.py`), the bytes of what is in them (`formats.py`), cutting a stream into
messages (`amqpd.cluster.links`).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from amqpd.replication.formats import (
    MalformedMessage,
    Pieces,
    Reading,
    read_answer,
    read_ballot,
    read_entries,
    read_frame,
    read_opening,
    read_position,
    read_seal,
    read_state,
    write_answer,
    write_ballot,
    write_entries,
    write_frame,
    write_opening,
    write_position,
    write_seal,
    write_state,
)
from amqpd.replication.messages import (
    Answered,
    Ask,
    Cut,
    Ended,
    Entries,
    Fetched,
    FetchEntries,
    FetchParts,
    Filled,
    Hello,
    Lacked,
    Message,
    OpenLane,
    Page,
    Query,
    RequestSeal,
    Sealed,
    Told,
    Would,
)
from amqpd.replication.receiver import Missed

LENGTH = Struct("<I")
"""of what follows it: the kind and the rest"""
MESSAGE_BYTES_MAX = 1 << 30
"""A frame has at least one message of a client whole, which may have half of this (`message_bytes_max`); a home cuts
long before it has gathered as much again."""
HELLO_BYTES_MAX = 1024
"""What a stranger may send: enough for the longest names, and for what later versions add."""
PAGE_BYTES_MAX = 64 << 10
"""Of the text of a query or a page: a tenth of a millisecond of a link on which what is replicated goes, too."""


def encode(message: Message) -> Pieces:
    """With the length in front; payloads are in it as they are. Raises ValueError for a message that is too large."""
    form = _BY_TYPE[type(message)]
    first, *payloads = form.write(message)
    nbytes = _kind.size + len(first) + sum(map(len, payloads))
    bytes_max = HELLO_BYTES_MAX if isinstance(message, Hello) else MESSAGE_BYTES_MAX
    if nbytes > bytes_max:
        raise ValueError(f"a {form.type.__name__} of {nbytes} bytes: the limit is {bytes_max}")
    return [LENGTH.pack(nbytes) + _kind.pack(form.kind) + first, *payloads]


def decode(data: bytes | bytearray | memoryview) -> Message:
    """One whole message, without the length in front. Raises MalformedMessage."""
    reading = Reading(memoryview(data))
    [kind] = reading.fixed(_kind)
    if kind not in _BY_KIND:
        raise MalformedMessage(f"there is no message of kind {kind}")
    form = _BY_KIND[kind]
    message: Message = form.read(reading)
    if reading.left and form.type is not Hello:
        raise MalformedMessage(f"{reading.left} bytes follow the end of {form.type.__name__}")
    return message


class _Format(NamedTuple):
    kind: int
    type: type
    write: Callable[[Any], Pieces]
    read: Callable[[Reading], Any]


_kind = Struct("<B")
_lane = Struct("<Iq")
_hello = Struct("<8sHqqHH")
_MAGIC = b"amqpd\r\n\0"


def _write_hello(hello: Hello) -> Pieces:
    cluster, forwarder = hello.cluster.encode(), hello.forwarder.encode()
    head = _hello.pack(_MAGIC, hello.version, hello.life, hello.generation, len(cluster), len(forwarder))
    return [head + cluster + forwarder]


def _read_hello(reading: Reading) -> Hello:
    magic, version, life, generation, cluster_bytes, forwarder_bytes = reading.fixed(_hello)
    if magic != _MAGIC:
        raise MalformedMessage("this is no forwarder")
    return Hello(version, reading.text(cluster_bytes), reading.text(forwarder_bytes), life, generation)


_text = Struct("<qI")


def _write_text(of: Query | Page) -> Pieces:
    text = of.text.encode()
    if len(text) > PAGE_BYTES_MAX:
        raise ValueError(f"a {type(of).__name__} of {len(text)} bytes: the limit is {PAGE_BYTES_MAX}")
    return [_text.pack(of.number, len(text)) + text]


def _read_text(make: Callable[[int, str], Query | Page]) -> Callable[[Reading], Query | Page]:
    def read(reading: Reading) -> Query | Page:
        number, nbytes = reading.fixed(_text)
        if nbytes > PAGE_BYTES_MAX:
            raise MalformedMessage(f"a text of {nbytes} bytes is announced, the limit is {PAGE_BYTES_MAX}")
        return make(number, reading.text(nbytes))

    return read


def _behind(head: bytes, pieces: Pieces) -> Pieces:
    return [head + pieces[0], *pieces[1:]]


def _reads(make: Callable[..., Any], head: Struct, *values: Callable[[Reading], Any]) -> Callable[[Reading], Any]:
    """A message of the head's numbers, and these values behind them."""
    return lambda reading: make(*reading.fixed(head), *[value(reading) for value in values])


_told = Struct("<Iqq")
_ended = Struct("<Iqq")
_ask = Struct("<qq")
_request = Struct("<q")

_FORMATS = (
    _Format(1, Hello, _write_hello, _read_hello),
    _Format(
        2,
        OpenLane,
        lambda of: [_lane.pack(of.lane, of.question) + write_opening(of.opening)],
        _reads(OpenLane, _lane, read_opening),
    ),
    _Format(
        3,
        Cut,
        lambda of: _behind(_lane.pack(of.lane, of.question), write_frame(of.frame)),
        _reads(Cut, _lane, read_frame),
    ),
    _Format(
        4,
        Lacked,
        lambda of: _behind(_lane.pack(of.lane, of.question), write_entries(of.missed.entries)),
        _reads(Lacked, _lane, lambda reading: Missed(read_entries(reading))),
    ),
    _Format(
        5,
        Filled,
        lambda of: _behind(_lane.pack(of.lane, of.question), write_state(of.state)),
        _reads(Filled, _lane, read_state),
    ),
    _Format(6, Told, lambda of: [_told.pack(of.lane, of.question, of.committed)], _reads(Told, _told)),
    _Format(7, Ended, lambda of: [_ended.pack(of.lane, of.source, of.epoch)], _reads(Ended, _ended)),
    _Format(
        8,
        Answered,
        lambda of: [_lane.pack(of.lane, of.question) + write_answer(of.answer)],
        _reads(Answered, _lane, read_answer),
    ),
    _Format(9, Ask, lambda of: [_ask.pack(of.request, of.source)], _reads(Ask, _ask)),
    _Format(
        10,
        Would,
        lambda of: [_request.pack(of.request) + write_ballot(of.ballot)],
        _reads(Would, _request, read_ballot),
    ),
    _Format(
        11,
        RequestSeal,
        lambda of: [_ask.pack(of.request, of.source) + write_seal(of.seal)],
        _reads(RequestSeal, _ask, read_seal),
    ),
    _Format(
        12,
        Sealed,
        lambda of: [_request.pack(of.request) + write_seal(of.seal) + write_ballot(of.ballot)],
        _reads(Sealed, _request, read_seal, read_ballot),
    ),
    _Format(
        13,
        FetchEntries,
        lambda of: [_ask.pack(of.request, of.source) + write_position(of.after)],
        _reads(FetchEntries, _ask, read_position),
    ),
    _Format(
        14,
        Entries,
        lambda of: _behind(_request.pack(of.request), write_entries(of.entries)),
        _reads(Entries, _request, read_entries),
    ),
    _Format(
        15,
        FetchParts,
        lambda of: [_ask.pack(of.request, of.source) + write_position(of.after)],
        _reads(FetchParts, _ask, read_position),
    ),
    _Format(
        16,
        Fetched,
        lambda of: _behind(_request.pack(of.request), write_state(of.state)),
        _reads(Fetched, _request, read_state),
    ),
    _Format(17, Query, _write_text, _read_text(Query)),
    _Format(18, Page, _write_text, _read_text(Page)),
)
_BY_TYPE = {form.type: form for form in _FORMATS}
_BY_KIND = {form.kind: form for form in _FORMATS}
