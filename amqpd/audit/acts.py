"""Acts: what people and programs did to the broker, as rows of the log.

What comes in: changes of the topology that took effect, log-ins, refusals. What goes out: rows, by the recorder.
Rules: 1. No secrets: of a user there is no password and no hash, of a parameter no value. 2. The user is known when
a client did it over AMQP, or a user over HTTP. A command that asks the broker, or writes into the metadata store
itself, is the user rmq-cli; but where nodes share the store, a change that nobody here asked for may be another
node's, and has no user.
Not here: messages (`book.py`), who may do what (`security/`).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from amqpd.audit.recorder import Recorder
from amqpd.vocabulary.caller import COMMAND_LINE, Caller
from amqpd.vocabulary.client import Client
from amqpd.vocabulary.records import (
    BindingRecord,
    Change,
    ExchangeRecord,
    Key,
    PermissionRecord,
    PolicyRecord,
    Put,
    QueueRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)

Resume = Callable[[bool], None]


Asker = Client | Caller
NODE = Caller("")
"""the node itself: what ends by its own rules"""

# key[0] of a record -> the events when it comes and when it goes, and what it is called.
_EVENTS = {
    "vhost": ("vhost_put", "vhost_deleted", "vhost"),
    "user": ("user_put", "user_deleted", "user"),
    "permission": ("permission_put", "permission_deleted", "permission of"),
    "topic-permission": ("permission_put", "permission_deleted", "topic permission of"),
    "exchange": ("exchange_declared", "exchange_deleted", "exchange"),
    "queue": ("queue_declared", "queue_deleted", "queue"),
    "binding": ("bound", "unbound", "binding"),
    "policy": ("policy_put", "policy_deleted", "policy"),
    "operator-policy": ("policy_put", "policy_deleted", "operator policy"),
    "parameter": ("parameter_put", "parameter_deleted", "parameter"),
}


class Acts:
    """Records acts: changes of the topology that took effect (`of_changes`), with the client that asked for each
    (`expect`), log-ins and refusals."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.told_changes: Callable[[Change, Asker | None], None] | None = None
        """is told of each change that took effect and who asked for it, recorded or not; None: another process"""
        self._asked: dict[Key, dict[int, tuple[Change, Asker]]] = {}
        """what is on its way to the metadata store, and which client asked for it, in order: several may ask for one
        thing"""
        self._numbers = itertools.count()
        self.unasked = COMMAND_LINE
        """whose changes those are that nobody asked this process for"""

    def watch(self, told: Callable[[dict[str, Any]], None]) -> None:
        """From now on it is given each act that is recorded: the columns of its row, without the number."""
        self._recorder.watch = told

    def expect(self, changes: Sequence[Change], by: Asker, resume: Resume) -> Resume:
        """The client, or the caller, asks for the changes; `resume` is called when they took effect or were refused:
        what is returned has to be called instead."""
        if not self._recorder.acts and self.told_changes is None:
            return resume
        requests = [(_key_of(change), next(self._numbers)) for change in changes]
        for change, (key, number) in zip(changes, requests, strict=True):
            self._asked.setdefault(key, {})[number] = (change, by)

        def done(made: bool) -> None:
            for key, number in requests:
                self._forget(key, number)
            resume(made)

        return done

    def _forget(self, key: Key, number: int) -> None:
        asked = self._asked.get(key)
        if asked is not None:
            asked.pop(number, None)
            if not asked:
                del self._asked[key]

    def _asker(self, key: Key, change: Change) -> Asker | None:
        """Whose request took effect as this change; None: another process made it."""
        found = None
        for number, (request, client) in self._asked.get(key, {}).items():
            if isinstance(request, Put) != isinstance(change, Put):
                continue
            if _same(request, change):
                found = number, client
                break
            # Its id says which queue a record is of; of others the first one that was asked for is taken.
            if found is None and key[0] != "queue":
                found = number, client
        if found is None:
            return None
        self._forget(key, found[0])  # it takes effect once
        return found[1]

    def of_changes(self, changes: Iterable[Change]) -> None:
        recorded, told = self._recorder.acts, self.told_changes
        if not recorded and told is None:
            return
        for change in changes:
            key = _key_of(change)
            by = self._asker(key, change)
            if told is not None:
                told(change, by)
            known = _EVENTS.get(key[0])
            if known is None or not recorded:
                continue
            put, deleted, called = known
            columns = _who(self.unasked if by is None else by)
            columns["object"] = f"{called} {' '.join(part for part in _named(key))}".strip()
            if key[0] != "user" and key[1]:
                columns["vhost"] = key[1]
            if isinstance(change, Put):
                columns["detail"] = json.dumps(_detail(change.record), default=str, sort_keys=True)
            self._recorder.act(put if isinstance(change, Put) else deleted, columns)

    def opened(self, connection: Client) -> None:
        self._recorder.act("connection_opened", {**_who(connection), "vhost": connection.vhost})

    def closed(self, connection: Client) -> None:
        self._recorder.act("connection_closed", {**_who(connection), "vhost": connection.vhost})

    def login_failed(self, connection: Client, reason: str) -> None:
        self._recorder.act("login_failed", {**_who(connection), "user": connection.claimed_user, "reason": reason})

    def refused(self, connection: Client, text: str) -> None:
        """`text` is what the client was told."""
        columns = {**_who(connection), "vhost": connection.vhost, "object": _object_of(text)}
        self._recorder.act("permission_refused", {**columns, "detail": json.dumps({"told": text})})

    def purged(self, by: Asker, vhost: str, queue: str, count: int) -> None:
        columns = {**_who(by), "vhost": vhost, "object": f"queue {queue}"}
        self._recorder.act("queue_purged", {**columns, "detail": json.dumps({"messages": count})})

    def over_http(self, event: str, columns: Mapping[str, Any]) -> None:
        """A request that is to change something, and what became of it."""
        self._recorder.act(event, dict(columns))

    def of_orphan(self, event: str, orphan_id: int, vhost: str | None, about: Mapping[str, Any], by: Asker) -> None:
        """What an operator did with messages whose queue is unknown. `vhost`: where they went."""
        columns = {**_who(by), "object": f"orphan {orphan_id}", "detail": json.dumps(dict(about), sort_keys=True)}
        self._recorder.act(event, columns if vhost is None else {**columns, "vhost": vhost})


def _key_of(change: Change) -> Key:
    return change.record.key if isinstance(change, Put) else change.key


def _same(request: Change, change: Change) -> bool:
    if not isinstance(request, Put) or not isinstance(change, Put):
        return True
    if isinstance(request.record, QueueRecord) and isinstance(change.record, QueueRecord):
        return request.record.id == change.record.id
    return request.record == change.record


def _who(connection: Asker) -> dict[str, Any]:
    if connection is NODE:
        return {}
    if isinstance(connection, Caller):
        return {"user": connection.user, **({"address": connection.address} if connection.address else {})}
    name = connection.name
    # A peer is "address:port -> ..." in the log; the address alone is what people look for.
    return {"user": connection.user, "connection": name, "address": address_of(name)}


def address_of(name: str) -> str:
    """Of a peer as the log names it: 127.0.0.1:5000, [::1]:5000."""
    peer = name.split(" ", 1)[0]
    return peer.rpartition(":")[0].strip("[]") or peer


def _named(key: Key) -> tuple[str, ...]:
    """What of a key names the thing, beside its virtual host."""
    if key[0] in ("vhost", "user"):
        return key[1:]
    return key[2:]


def _object_of(text: str) -> str:
    """Of a refusal: "ACCESS_REFUSED - configure access to queue 'q' in vhost ...", what it is about."""
    _, _, rest = text.partition(" access to ")
    kind, _, quoted = rest.partition(" '")
    return f"{kind} {quoted.partition(chr(39))[0]}" if quoted else ""


def _detail(record: object) -> dict[str, Any]:
    match record:
        case QueueRecord():
            return {
                "durable": record.durable,
                "auto_delete": record.auto_delete,
                "exclusive": record.exclusive,
                "arguments": dict(record.arguments),
            }
        case ExchangeRecord():
            return {"type": record.type, "durable": record.durable, "arguments": dict(record.arguments)}
        case BindingRecord():
            return {
                "source": record.source,
                "destination": record.destination,
                "routing_key": record.routing_key,
                "destination_type": record.destination_type,
                "arguments": dict(record.arguments),
            }
        case UserRecord():
            return {"tags": list(record.tags), "password": bool(record.password_hash), "limits": dict(record.limits)}
        case PermissionRecord():
            return {"configure": record.configure, "write": record.write, "read": record.read}
        case TopicPermissionRecord():
            return {"exchange": record.exchange, "write": record.write, "read": record.read}
        case PolicyRecord():
            return {
                "pattern": record.pattern,
                "apply_to": record.apply_to,
                "priority": record.priority,
                "definition": dict(record.definition),
            }
        case VhostRecord():
            return {"description": record.description}
        case _:
            return {}
