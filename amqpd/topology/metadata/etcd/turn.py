"""The turn of one process in etcd: requests that change the store one after the other, and what became of each.

What comes in: compares, operations, keys to read should a compare fail. What goes out: the revision of what was done,
or what was found instead; StoreUnavailable or OutcomeUnknown when etcd did not answer in time.
Rules: 1. Each process has a key that every request of it compares by revision and puts, with a mark of its own. So of
two requests that were not answered at most one has an effect, and the next one that is answered says which: it finds
the turn where it was, or an earlier mark in it. To read the turn proves nothing: the request may still be on its way.
2. While the fate of a request is open nothing else is answered: the turn is put once more, by a request that changes
nothing else, and the open one cannot happen any more. 3. Every request compares the store's identity: nothing is ever
written to another store that stands at the same address; one that is older than what was seen is not believed.
Not here: the contract's transactions (`transactions.py`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial

import structlog

from amqpd.topology.metadata.etcd import messages
from amqpd.topology.metadata.etcd.gateway import NOT_FOUND, TXN, EtcdRefused, Gateway
from amqpd.topology.metadata.etcd.layout import Layout
from amqpd.topology.metadata.etcd.messages import EtcdEntry, Message
from amqpd.topology.metadata.etcd.patience import EtcdPatience
from amqpd.topology.metadata.generations import is_earlier
from amqpd.topology.metadata.own_time import RanOut
from amqpd.topology.metadata.store import MetadataStoreError, OutcomeUnknown, StoreUnavailable, StoreUnreached

log = structlog.get_logger(component="metadata store")


class WentBack(Exception):
    """The store that answers is not the one that was opened, or is in an older state. The text says what was
    found."""


class OlderCopy(WentBack):
    """The store that answers is the one that was opened, in an earlier state."""


class EtcdTurn:
    """The turn of one process in etcd, in which its requests change the store. One `swap` or `resolve_open` at a
    time."""

    def __init__(self, gateway: Gateway, layout: Layout, identity: str, incarnation: str) -> None:
        self.layout = layout
        self.head = 0
        """the newest revision of the store that is known here"""
        self._gateway = gateway
        self.identity = identity
        self.key = layout.turn(incarnation)
        """where it is in etcd"""
        self._at = 0
        self._open: set[str] = set()
        """marks of requests that may have happened, or may still happen"""
        self._resolving: set[str] = set()
        """marks of resolving requests whose answers were lost"""

    async def swap(
        self, compares: Sequence[Message], operations: Sequence[Message], keys: Sequence[str], patience: EtcdPatience
    ) -> tuple[int, dict[str, EtcdEntry]]:
        """The revision at which the operations took effect; or 0, and what was found of `keys` when a compare failed.
        Raises StoreUnavailable, OutcomeUnknown, StoreFull, WentBack, ValueError, and EtcdRefused when there is no
        such lease."""
        await self.resolve_open(patience)
        mark, head = secrets.token_hex(8), self.head
        request = messages.transaction(
            [*self._compares(), *compares],
            [*operations, messages.put(self.layout.head, mark), messages.put(self.key, mark)],
            [messages.read(key) for key in (*self._own_keys(), *keys)],
        )
        answered = await self._send(request, mark, patience)
        if isinstance(answered, int):
            return answered, {}
        if answered.get("succeeded"):
            return self._moved_to(messages.revision_of(answered)), {}
        seen = messages.read_in(answered)
        if (turn := seen.get(self.key)) is not None and turn.value == mark:
            return self._moved_to(turn.mod_revision), {}
        self._check(seen, head)
        self._require_turn(turn)
        if self._open and (happened := await self._resolve_unknown(mark, patience)):
            return happened, {}
        return 0, seen

    async def resolve_open(self, patience: EtcdPatience, mark: str = "") -> int:
        """Returns when no request is open any more; the revision of the request with the mark, if it happened. Raises
        StoreUnavailable, WentBack."""
        if not self._open:
            return 0
        own, head = secrets.token_hex(8), self.head
        self._resolving.add(own)
        request = messages.transaction(
            self._compares(), [messages.put(self.key, own)], [messages.read(key) for key in self._own_keys()]
        )
        answer = await patience.keep_trying(lambda: self._gateway.ask(TXN, request))
        if answer.get("succeeded"):
            self._resolved_at(messages.revision_of(answer))
            return 0
        seen = messages.read_in(answer)
        turn = seen.get(self.key)
        if turn is not None and turn.value in self._open:
            log.info("a change whose answer was lost has taken effect", revision=turn.mod_revision)
            self._moved_to(turn.mod_revision)
            return turn.mod_revision if turn.value == mark else 0
        self._check(seen, head)
        if turn is not None and turn.value in self._resolving:
            # This one, repeated, or an earlier one that the caller gave up: its answer was lost.
            self._resolved_at(turn.mod_revision)
        else:
            self._require_turn(turn)
            raise StoreUnavailable(f"{self._gateway.access} refuses what it has no reason to")
        return 0

    async def read(self, keys: Sequence[str], patience: EtcdPatience) -> dict[str, EtcdEntry]:
        """What there is of the keys, all at one revision. Raises StoreUnavailable, WentBack."""
        head = self.head
        request = messages.transaction([], [messages.read(key) for key in (*self._own_keys(), *keys)])
        seen = messages.read_in(await patience.keep_trying(lambda: self._gateway.ask(TXN, request)))
        self._check(seen, head)
        return seen

    async def touch(self, patience: EtcdPatience) -> int:
        """A new revision of the store that changes nothing. Raises StoreUnavailable, WentBack."""
        compares = [messages.value_is(self.layout.identity, self.identity)]
        request = messages.transaction(compares, [messages.put(self.layout.head, secrets.token_hex(8))])
        answer = await patience.keep_trying(lambda: self._gateway.ask(TXN, request))
        if not answer.get("succeeded"):
            raise WentBack("another store, or none, is there now")
        self.head = max(self.head, messages.revision_of(answer))
        return messages.revision_of(answer)

    async def _send(self, request: Message, mark: str, patience: EtcdPatience) -> Message | int:
        """The answer; or the revision of an earlier try, when a later one was refused."""
        sent = False
        failure: StoreUnreached
        while True:
            # Before it is sent: who is cancelled meanwhile leaves it open.
            self._open.add(mark)
            try:
                answer = await patience.within(partial(self._gateway.change, TXN, request))
            except RanOut:
                sent, failure = True, OutcomeUnknown(str(self._gateway.silence()))
            except OutcomeUnknown as error:
                sent, failure = True, error
            except StoreUnavailable as error:
                failure = OutcomeUnknown(str(error)) if sent else error
            except EtcdRefused as refused:
                if sent and (happened := await self._resolve_unknown(mark, patience)):
                    return happened
                self._open.discard(mark)
                raise (refused if refused.code == NOT_FOUND else self._gateway.explained(refused)) from refused
            else:
                if not sent:
                    self._open.discard(mark)
                return answer
            if not sent:
                self._open.discard(mark)
            if not await patience.pause():
                raise failure

    async def _resolve_unknown(self, mark: str, patience: EtcdPatience) -> int:
        try:
            return await self.resolve_open(patience, mark)
        except StoreUnreached as error:
            raise OutcomeUnknown(str(error)) from error

    def _compares(self) -> list[Message]:
        return [
            messages.value_is(self.layout.identity, self.identity),
            messages.revision_is(self.key, self._at),
        ]

    def _own_keys(self) -> tuple[str, ...]:
        return self.layout.identity, self.layout.head, self.key

    def _check(self, seen: dict[str, EtcdEntry], head: int) -> None:
        """`head`: what was known before this was asked for. Raises WentBack."""
        identity, found = seen.get(self.layout.identity), seen.get(self.layout.head)
        if identity is None:
            raise WentBack("there is no metadata store any more: it was emptied, or its prefix deleted")
        if is_earlier(identity.value, self.identity):
            raise OlderCopy(f"it is {identity.value}, and was {self.identity} before: it was restored from a backup")
        if identity.value != self.identity:
            raise WentBack(f"another metadata store is there now: {identity.value}, not {self.identity}")
        if (at := found.mod_revision if found else 0) < head:
            raise OlderCopy(f"it is of revision {at}, and had {head} before: it was restored from an older backup")
        self.head = max(self.head, at)

    def _require_turn(self, turn: EtcdEntry | None) -> None:
        if (turn.mod_revision if turn is not None else 0) != self._at:
            raise MetadataStoreError(f"another process writes to {self.key} of {self._gateway.access}")

    def _resolved_at(self, revision: int) -> None:
        """Nothing that is open can happen any more. (The store's revision is another: `head` was not put.)"""
        self._at = revision
        self._open.clear()
        self._resolving.clear()

    def _moved_to(self, revision: int) -> int:
        self._resolved_at(revision)
        self.head = max(self.head, revision)
        return revision
