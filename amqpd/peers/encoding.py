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
from dataclasses import fields, replace
from struct import Struct
from typing import Any, NamedTuple

from amqpd.peers.entry import NUMBER_MAX
from amqpd.peers.formats import (
    ANSWER,
    BALLOT,
    BODY,
    DRAWN_MAX,
    ENTRIES,
    FRAME,
    FRAME_4,
    NAME,
    NAMES,
    NUMBER,
    OPENING,
    POSITION,
    SOURCE_EPOCHS,
    STATE,
    VOTE,
    MalformedMessage,
    MessageReader,
    Part,
    Pieces,
    as_led_source,
    as_position,
    as_source,
)
from amqpd.peers.messages import (
    NONCE_BYTES,
    Answered,
    AppliedRevision,
    AskRevision,
    Cut,
    DataHeartbeat,
    Ended,
    Entries,
    Fetched,
    FetchEntries,
    FetchParts,
    Filled,
    Greeting,
    HandedSessions,
    Heartbeat,
    Hello,
    HoldsNothing,
    Lacked,
    Message,
    OpenReplicaSet,
    Page,
    Proof,
    Purpose,
    Query,
    Refusal,
    RequestPreVote,
    RequestVote,
    ToEdge,
    ToLeader,
    Voted,
    Would,
)
from amqpd.peers.versions import HAS_DATA_LINKS, HIGHEST, LOWEST, RANGED

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
    form = _BY_TYPE[version].get(type(message))
    if form is None:
        raise ValueError(f"version {version} has no {type(message).__name__}")
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
_hello = Struct("<8sHqqHH")
_greeted = Struct("<H?")
_lowest = Struct("<H")
_purpose = Struct("<B")
_PURPOSES = frozenset(Purpose)
_MAGIC = b"amqpd\r\n\0"


def _write_greeting(greeting: Greeting) -> Pieces:
    hello = greeting.hello
    cluster, forwarder, target = hello.cluster.encode(), hello.forwarder.encode(), greeting.target.encode()
    head = _hello.pack(_MAGIC, hello.version, hello.incarnation, hello.generation, len(cluster), len(forwarder))
    said = head + cluster + forwarder + _greeted.pack(len(target), greeting.secret) + target + greeting.nonce
    if hello.version >= RANGED:
        said += _lowest.pack(hello.lowest)
    if hello.version >= HAS_DATA_LINKS:
        said += _purpose.pack(greeting.purpose)
    elif greeting.purpose is not Purpose.REPLICATION:
        raise ValueError(f"a Greeting of version {hello.version} for {greeting.purpose}")
    return [said + greeting.more if hello.version >= RANGED else said]


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
    purpose = Purpose.REPLICATION
    if version >= HAS_DATA_LINKS:
        [number] = reading.fixed(_purpose)
        if number not in _PURPOSES:
            raise MalformedMessage(f"a connection for a purpose {number}")
        purpose = Purpose(number)
    more = reading.rest()
    if more and version <= HIGHEST:
        raise MalformedMessage(f"{len(more)} bytes follow the end of Greeting")
    return Greeting(replace(hello, lowest=lowest), target, nonce, secret, more, purpose)


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


def _of_fields(
    kind: int,
    made: type,
    head: Struct,
    *parts: Part,
    first: int = LOWEST,
    last: int = HIGHEST,
    check_source: Callable[[int], int] = as_source,
) -> _Format:
    """Of a message whose first fields are the numbers of the head, in their order, and the next ones these parts."""
    count = len(head.unpack(bytes(head.size)))
    names = [field.name for field in fields(made)]
    numbers, values = names[:count], list(zip(names[count:], parts, strict=False))

    def write(of: Any) -> Pieces:
        said, payloads = head.pack(*[getattr(of, name) for name in numbers]), Pieces()
        for name, part in values:
            piece, *payloads = part.write(getattr(of, name))
            said += piece
        return [said, *payloads]

    def read(reading: MessageReader) -> Any:
        message = made(*reading.fixed(head), *[part.read(reading) for part in parts])
        if "source" in numbers:
            check_source(message.source)
        if "epoch" in numbers:
            as_position(message.epoch, 0)
        return message

    return _Format(kind, made, write, read, first, last)


_nothing = Struct("<")
_replica_set = Struct("<Iq")
_ask = Struct("<qq")
_request = Struct("<q")
_session = Struct("<qqq")
_session_revision = Struct("<qqqq")

_FORMATS = (
    _Format(1, Greeting, _write_greeting, _read_greeting),
    _of_fields(2, OpenReplicaSet, _replica_set, OPENING),
    _of_fields(3, Cut, _replica_set, FRAME, first=5),
    _of_fields(3, Cut, _replica_set, FRAME_4, last=4),
    _of_fields(4, Lacked, _replica_set, ENTRIES),
    _of_fields(5, Filled, _replica_set, STATE),
    _of_fields(6, Heartbeat, Struct("<Iqqq"), first=5),
    _of_fields(6, Heartbeat, Struct("<Iqq"), last=4),
    _of_fields(7, Ended, Struct("<Iqq")),
    _of_fields(8, Answered, _replica_set, ANSWER, NUMBER, first=5),
    _of_fields(8, Answered, _replica_set, ANSWER, last=4),
    _of_fields(9, RequestPreVote, _ask),
    _of_fields(10, Would, _request, BALLOT),
    _of_fields(11, RequestVote, _ask, VOTE),
    _of_fields(12, Voted, _request, VOTE, BALLOT),
    _of_fields(13, FetchEntries, _ask, POSITION),
    _of_fields(14, Entries, _request, ENTRIES),
    _of_fields(15, FetchParts, _ask, POSITION),
    _of_fields(16, Fetched, _request, STATE),
    _Format(17, Query, _write_text, _read_text(Query)),
    _Format(18, Page, _write_text, _read_text(Page)),
    _Format(19, Proof, lambda proof: [proof.digest], _read_proof),
    _Format(20, Refusal, _write_refusal, _read_refusal),
    _of_fields(21, ToLeader, _session_revision, BODY, first=HAS_DATA_LINKS, check_source=as_led_source),
    _of_fields(22, ToEdge, _session, BODY, first=HAS_DATA_LINKS, check_source=as_led_source),
    _of_fields(23, HoldsNothing, _nothing, SOURCE_EPOCHS, first=HAS_DATA_LINKS),
    _of_fields(24, DataHeartbeat, _nothing, first=HAS_DATA_LINKS),
    _of_fields(25, HandedSessions, Struct("<q"), POSITION, BODY, first=HAS_DATA_LINKS),
    _of_fields(26, AskRevision, _request, first=HAS_DATA_LINKS),
    _of_fields(27, AppliedRevision, _ask, NAME, NAMES, first=HAS_DATA_LINKS),
)
_WITH_PAYLOADS = frozenset((Cut, Lacked, Filled, Entries, Fetched, ToLeader, ToEdge))
_SPOKEN = range(LOWEST, HIGHEST + 1)
_OF_VERSION = {each: [form for form in _FORMATS if form.first <= each <= form.last] for each in _SPOKEN}
_BY_TYPE = {version: {form.type: form for form in forms} for version, forms in _OF_VERSION.items()}
_BY_KIND = {version: {form.kind: form for form in forms} for version, forms in _OF_VERSION.items()}
