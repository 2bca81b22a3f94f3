"""Requests and answers of etcd's JSON gateway: what is sent for a compare or an operation, what came back.

What comes in: keys, values, revisions. What goes out: objects for JSON; `EtcdEntry`, a key with its value, from an
answer.
Rules: 1. Keys and values are bytes for etcd, base64 in JSON. Text is UTF-8, which sorts as its code points do. 2. The
gateway writes numbers of 64 bits as text, and leaves out what is zero or empty.
Not here: sending (`gateway.py`), which requests are made (`transactions.py`, `store.py`).
Source: etcd.io, "gRPC gateway" and the API reference of version 3.4 (rpc.proto, kv.proto).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, Any]

# The largest that etcd can count to. A larger one that somebody compares with is the revision of nothing.
REVISION_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class EtcdEntry:
    """A key of etcd with its value, the revision that put it last, and its lease (0: none)."""

    key: str
    value: str
    mod_revision: int
    lease: int = 0


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decoded(text: str) -> str:
    """What is not UTF-8, which nobody of us writes, is readable for people, and no record."""
    return base64.b64decode(text).decode(errors="backslashreplace")


def revision_is(key: str, revision: int) -> Message:
    """A compare: the key was put last by this revision; 0: it is absent."""
    wanted = str(min(revision, REVISION_MAX))
    return {"key": encoded(key), "target": "MOD", "result": "EQUAL", "mod_revision": wanted}


def revision_below(key: str, revision: int) -> Message:
    """A compare: the key was put last before this revision, or is absent."""
    return {"key": encoded(key), "target": "MOD", "result": "LESS", "mod_revision": str(revision)}


def is_present(key: str) -> Message:
    return {"key": encoded(key), "target": "MOD", "result": "GREATER", "mod_revision": "0"}


def value_is(key: str, value: str) -> Message:
    return {"key": encoded(key), "target": "VALUE", "result": "EQUAL", "value": encoded(value)}


def put(key: str, value: str, lease: int = 0) -> Message:
    return {"request_put": {"key": encoded(key), "value": encoded(value), "lease": str(lease)}}


def delete(key: str) -> Message:
    return {"request_delete_range": {"key": encoded(key)}}


def read(key: str) -> Message:
    return {"request_range": {"key": encoded(key)}}


def transaction(
    compares: Iterable[Message], operations: Iterable[Message], otherwise: Iterable[Message] = ()
) -> Message:
    return {"compare": list(compares), "success": list(operations), "failure": list(otherwise)}


def revision_of(answer: Message) -> int:
    return int(answer.get("header", {}).get("revision", 0))


def found_in(answer: Message) -> list[EtcdEntry]:
    """Of the answer to a range."""
    return [found(each) for each in answer.get("kvs", ())]


def read_in(answer: Message) -> dict[str, EtcdEntry]:
    """Everything that the reads of a transaction found."""
    return {
        each.key: each
        for response in answer.get("responses", ())
        for each in found_in(response.get("response_range", {}))
    }


def found(message: Message) -> EtcdEntry:
    return EtcdEntry(
        decoded(message.get("key", "")),
        decoded(message.get("value", "")),
        int(message.get("mod_revision", 0)),
        int(message.get("lease", 0)),
    )


def events_in(result: Message) -> Iterator[tuple[bool, EtcdEntry]]:
    """Of one message of a watch, in etcd's order: whether the key was deleted, and what it is now."""
    for event in result.get("events", ()):
        yield event.get("type") == "DELETE", found(event.get("kv", {}))
