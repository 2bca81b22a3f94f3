"""The bytes of messages between forwarders.

What comes in: a message, or the bytes of one, and the version that the two ends use. What goes out: its bytes, in
pieces; the message.
Rules: 1. The first byte of a message is its kind, which keeps its number in all versions. 2. What is not a message of
this version raises `MalformedMessage`, and nothing else does. 3. A Greeting begins alike in all versions. Of one
before `LOWEST` only that beginning is read, and from `RANGED` on all of it, whatever later versions have behind it:
so two versions can say which one they use, or why they do not talk. 4. A message that differs between versions stands
in the table once for each, with the versions that have it so.
Not here: what the messages mean (`messages.py`), the bytes of what is in them (`formats.py`), lengths and checksums
(`links/framing.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from struct import Struct
from typing import Any, NamedTuple

from amqpd.peers.entry import NUMBER_MAX
from amqpd.peers.formats import (
    DRAWN_MAX,
    MalformedMessage,
    MessageReader,
    Pieces,
    as_position,
    as_source,
    read_answer,
    read_ballot,
    read_entries,
    read_frame,
    read_frame_4,
    read_number,
    read_opening,
    read_position,
    read_state,
    read_vote,
    write_answer,
    write_ballot,
    write_behind,
    write_entries,
    write_frame,
    write_frame_4,
    write_number,
    write_opening,
    write_position,
    write_state,
    write_vote,
)
from amqpd.peers.messages import (
    NONCE_BYTES,
    Answered,
    Cut,
    Ended,
    Entries,
    Fetched,
    FetchEntries,
    FetchParts,
    Filled,
    Greeting,
    Heartbeat,
    Hello,
    Lacked,
    Message,
    Missed,
    OpenLane,
    Page,
    Proof,
    Query,
    Refusal,
    RequestPreVote,
    RequestVote,
    Voted,
    Would,
)
from amqpd.peers.versions import HIGHEST, LOWEST, RANGED

MESSAGE_BYTES_MAX = 1 << 30
"""A frame has at least one message of a client whole, which may have half of this (`message_bytes_max`); a leader
cuts long before it has gathered as much again."""
GREETING_BYTES_MAX = 1024
"""What a stranger may send: enough for the longest names, and for what later versions add."""
PROOF_BYTES_MAX = 64
REFUSAL_BYTES_MAX = 512
"""of its text"""
PAGE_BYTES_MAX = 64 << 10
"""Of the text of a query or a page: a tenth of a millisecond of a link on which what is replicated goes, too."""


SMALL_BYTES_MAX = 1 << 20
"""Of messages that have no payload: an answer about all sources, with the longest names, is a tenth of it."""


def bytes_max_of(kind: int) -> int:
    """What a message that begins with this byte may have: who sends it is not believed a larger one."""
    form = _BY_KIND[HIGHEST].get(kind)
    return MESSAGE_BYTES_MAX if form is not None and form.type in _WITH_PAYLOADS else SMALL_BYTES_MAX


def encode(message: Message, version: int = HIGHEST) -> Pieces:
    """Payloads are in it as they are. Raises ValueError for a message that is too large, or says what this version
    has no bytes for and its peer must not miss."""
    form = _BY_TYPE[version][type(message)]
    first, *payloads = form.write(message)
    nbytes = _kind.size + len(first) + sum(map(len, payloads))
    bytes_max = GREETING_BYTES_MAX if isinstance(message, Greeting) else MESSAGE_BYTES_MAX
    if nbytes > bytes_max:
        raise ValueError(f"a {form.type.__name__} of {nbytes} bytes: the limit is {bytes_max}")
    return [_kind.pack(form.kind) + first, *payloads]


def decode(data: bytes | bytearray | memoryview, version: int = HIGHEST) -> Message:
    """One whole message. Raises MalformedMessage."""
    reading = MessageReader(memoryview(data))
    [kind] = reading.fixed(_kind)
    form = _BY_KIND[version].get(kind)
    if form is None:
        raise MalformedMessage(f"there is no message of kind {kind} in version {version}")
    message: Message = form.read(reading)
    if reading.left and not (isinstance(message, Greeting) and message.hello.version < LOWEST):
        raise MalformedMessage(f"{reading.left} bytes follow the end of {form.type.__name__}")
    return message


class _Format(NamedTuple):
    kind: int
    type: type
    write: Callable[[Any], Pieces]
    read: Callable[[MessageReader], Any]
    first: int = LOWEST
    last: int = HIGHEST
    """versions that have it so"""


_kind = Struct("<B")
_lane = Struct("<Iq")
_hello = Struct("<8sHqqHH")
_greeted = Struct("<H?")
_lowest = Struct("<H")
_MAGIC = b"amqpd\r\n\0"


def _write_greeting(greeting: Greeting) -> Pieces:
    hello = greeting.hello
    cluster, forwarder, target = hello.cluster.encode(), hello.forwarder.encode(), greeting.target.encode()
    head = _hello.pack(_MAGIC, hello.version, hello.incarnation, hello.generation, len(cluster), len(forwarder))
    said = head + cluster + forwarder + _greeted.pack(len(target), greeting.secret) + target + greeting.nonce
    return [said + _lowest.pack(hello.lowest) + greeting.more] if hello.version >= RANGED else [said]


def _read_greeting(reading: MessageReader) -> Greeting:
    magic, version, incarnation, generation, cluster_bytes, forwarder_bytes = reading.fixed(_hello, DRAWN_MAX)
    if magic != _MAGIC:
        raise MalformedMessage("this is no forwarder")
    if incarnation > NUMBER_MAX:
        raise MalformedMessage(f"there is no incarnation {incarnation}")
    hello = Hello(
        version, reading.text(cluster_bytes), reading.text(forwarder_bytes), incarnation, generation, version
    )
    if version < LOWEST:
        return Greeting(hello, "", b"", secret=False)
    target_bytes, secret = reading.fixed(_greeted)
    target, nonce = reading.text(target_bytes), bytes(reading.view(NONCE_BYTES))
    if version < RANGED:
        return Greeting(hello, target, nonce, secret)
    [lowest] = reading.fixed(_lowest)
    if not 1 <= lowest <= version:
        raise MalformedMessage(f"a node that speaks versions {lowest} to {version}")
    more = reading.rest()
    if more and version == HIGHEST:
        raise MalformedMessage(f"{len(more)} bytes follow the end of Greeting")
    return Greeting(replace(hello, lowest=lowest), target, nonce, secret, more)


def _write_proof(proof: Proof) -> Pieces:
    return [proof.digest]


def _read_proof(reading: MessageReader) -> Proof:
    if reading.left > PROOF_BYTES_MAX:
        raise MalformedMessage(f"a proof of {reading.left} bytes, the limit is {PROOF_BYTES_MAX}")
    return Proof(reading.rest())


def _write_refusal(refusal: Refusal) -> Pieces:
    return [refusal.reason.encode()[:REFUSAL_BYTES_MAX].decode(errors="ignore").encode()]


def _read_refusal(reading: MessageReader) -> Refusal:
    if reading.left > REFUSAL_BYTES_MAX:
        raise MalformedMessage(f"a refusal of {reading.left} bytes, the limit is {REFUSAL_BYTES_MAX}")
    return Refusal(reading.text(reading.left))


_text = Struct("<qI")


def _write_text(of: Query | Page) -> Pieces:
    text = of.text.encode()
    if len(text) > PAGE_BYTES_MAX:
        raise ValueError(f"a {type(of).__name__} of {len(text)} bytes: the limit is {PAGE_BYTES_MAX}")
    return [_text.pack(of.number, len(text)) + text]


def _read_text(make: Callable[[int, str], Query | Page]) -> Callable[[MessageReader], Query | Page]:
    def read(reading: MessageReader) -> Query | Page:
        number, nbytes = reading.fixed(_text)
        if nbytes > PAGE_BYTES_MAX:
            raise MalformedMessage(f"a text of {nbytes} bytes is announced, the limit is {PAGE_BYTES_MAX}")
        return make(number, reading.text(nbytes))

    return read


def _reads(
    make: Callable[..., Any], head: Struct, *values: Callable[[MessageReader], Any]
) -> Callable[[MessageReader], Any]:
    """A message of the head's numbers, and these values behind them."""
    return lambda reading: make(*reading.fixed(head), *[value(reading) for value in values])


_heartbeat = Struct("<Iqqq")
_heartbeat_4 = Struct("<Iqq")
_ended = Struct("<Iqq")
_ask = Struct("<qq")


def _read_of_source(
    make: Callable[..., Any], head: Struct, *values: Callable[[MessageReader], Any]
) -> Callable[[MessageReader], Any]:
    """The last number of the head is a source."""

    def read(reading: MessageReader) -> Any:
        *numbers, source = reading.fixed(head)
        return make(*numbers, as_source(source), *[value(reading) for value in values])

    return read


def _read_ended(reading: MessageReader) -> Ended:
    lane, source, epoch = reading.fixed(_ended)
    return Ended(lane, as_source(source), as_position(epoch, 0)[0])


def _write_cut_4(cut: Cut) -> Pieces:
    if cut.frame.revision:
        # A frame is cut for a set, all of whose members are to read what it has.
        raise ValueError(f"a frame that names revision {cut.frame.revision}, for a node of version 4")
    return write_behind(_lane.pack(cut.lane, cut.question), write_frame_4(cut.frame))


_request = Struct("<q")

_FORMATS = (
    _Format(1, Greeting, _write_greeting, _read_greeting),
    _Format(
        2,
        OpenLane,
        lambda of: [_lane.pack(of.lane, of.question) + write_opening(of.opening)],
        _reads(OpenLane, _lane, read_opening),
    ),
    _Format(
        3,
        Cut,
        lambda of: write_behind(_lane.pack(of.lane, of.question), write_frame(of.frame)),
        _reads(Cut, _lane, read_frame),
        first=5,
    ),
    _Format(3, Cut, _write_cut_4, _reads(Cut, _lane, read_frame_4), last=4),
    _Format(
        4,
        Lacked,
        lambda of: write_behind(_lane.pack(of.lane, of.question), write_entries(of.missed.entries)),
        _reads(Lacked, _lane, lambda reading: Missed(read_entries(reading))),
    ),
    _Format(
        5,
        Filled,
        lambda of: write_behind(_lane.pack(of.lane, of.question), write_state(of.state)),
        _reads(Filled, _lane, read_state),
    ),
    _Format(
        6,
        Heartbeat,
        lambda of: [_heartbeat.pack(of.lane, of.question, of.committed, of.revision)],
        _reads(Heartbeat, _heartbeat),
        first=5,
    ),
    _Format(
        6,
        Heartbeat,
        lambda of: [_heartbeat_4.pack(of.lane, of.question, of.committed)],
        _reads(Heartbeat, _heartbeat_4),
        last=4,
    ),
    _Format(7, Ended, lambda of: [_ended.pack(of.lane, of.source, of.epoch)], _read_ended),
    _Format(
        8,
        Answered,
        lambda of: [_lane.pack(of.lane, of.question) + write_answer(of.answer) + write_number(of.revision)],
        _reads(Answered, _lane, read_answer, read_number),
        first=5,
    ),
    _Format(
        8,
        Answered,
        lambda of: [_lane.pack(of.lane, of.question) + write_answer(of.answer)],
        _reads(Answered, _lane, read_answer),
        last=4,
    ),
    _Format(9, RequestPreVote, lambda of: [_ask.pack(of.request, of.source)], _read_of_source(RequestPreVote, _ask)),
    _Format(
        10,
        Would,
        lambda of: [_request.pack(of.request) + write_ballot(of.ballot)],
        _reads(Would, _request, read_ballot),
    ),
    _Format(
        11,
        RequestVote,
        lambda of: [_ask.pack(of.request, of.source) + write_vote(of.vote)],
        _read_of_source(RequestVote, _ask, read_vote),
    ),
    _Format(
        12,
        Voted,
        lambda of: [_request.pack(of.request) + write_vote(of.vote) + write_ballot(of.ballot)],
        _reads(Voted, _request, read_vote, read_ballot),
    ),
    _Format(
        13,
        FetchEntries,
        lambda of: [_ask.pack(of.request, of.source) + write_position(of.after)],
        _read_of_source(FetchEntries, _ask, read_position),
    ),
    _Format(
        14,
        Entries,
        lambda of: write_behind(_request.pack(of.request), write_entries(of.entries)),
        _reads(Entries, _request, read_entries),
    ),
    _Format(
        15,
        FetchParts,
        lambda of: [_ask.pack(of.request, of.source) + write_position(of.after)],
        _read_of_source(FetchParts, _ask, read_position),
    ),
    _Format(
        16,
        Fetched,
        lambda of: write_behind(_request.pack(of.request), write_state(of.state)),
        _reads(Fetched, _request, read_state),
    ),
    _Format(17, Query, _write_text, _read_text(Query)),
    _Format(18, Page, _write_text, _read_text(Page)),
    _Format(19, Proof, _write_proof, _read_proof),
    _Format(20, Refusal, _write_refusal, _read_refusal),
)
_WITH_PAYLOADS = frozenset((Cut, Lacked, Filled, Entries, Fetched))
_SPOKEN = range(LOWEST, HIGHEST + 1)
_OF_VERSION = {each: [form for form in _FORMATS if form.first <= each <= form.last] for each in _SPOKEN}
_BY_TYPE = {version: {form.type: form for form in forms} for version, forms in _OF_VERSION.items()}
_BY_KIND = {version: {form.kind: form for form in forms} for version, forms in _OF_VERSION.items()}
