"""Definitions: everything that exists as one document, and a broker that is made to have what a document says.

What comes in: a document that was read (`Definitions`), and what to do about what is not in it or otherwise. What
goes out: the text of a document; the difference, as it would be or as it was made.
Rules: 1. All or nothing: a conflict that was not waved through changes nothing, and as RabbitMQ asks for it
(`as_rabbitmq`) neither does what cannot be made. 2. What is durable goes through the metadata store, whether a broker
runs or not; what is transient needs a running broker, and is left out without one.
Not here: the format and the comparison (`amqpd/definitions/`), files (`commands/definitions.py`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import trio

from amqpd import __version__
from amqpd.definitions.difference import Difference, Place, difference, unplaced
from amqpd.definitions.document import Definitions
from amqpd.definitions.export import export_steps
from amqpd.management.errors import AlreadyExists, BadArgument
from amqpd.management.metadata.interface import ManagedMetadata, Plan, found_vhost
from amqpd.management.pacing import each
from amqpd.security.authentication.passwords import hash_password, verify_password
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import BindingRecord, Change, Key, Put, Record, UserRecord

NAMED_MAX = 20
"""so many things that cannot be made are named in one sentence"""
PLACES = ("vhosts", "users", "exchanges", "queues")
"""sections of what other things belong to, or bind"""


class Conflicting(AlreadyExists):
    """The document names something that exists otherwise. `found` says what."""

    def __init__(self, sentence: str, found: Difference) -> None:
        super().__init__(sentence)
        self.found = found


class ImpossibleDefinitions(BadArgument):
    """The document names something that cannot be made, whatever exists. The sentence names each, up to a bound."""


async def exported(metadata: ManagedMetadata, vhost: str | None = None) -> str:
    """The document of all that exists, or of what is in the virtual host. Equal definitions give equal text. Raises
    NotFound."""
    return b"".join(await exported_parts(metadata, vhost)).decode()


async def exported_parts(metadata: ManagedMetadata, vhost: str | None = None) -> list[bytes]:
    """As `exported`, in pieces: together it may be very long. A broker goes on meanwhile."""
    topology = await metadata.read(whole=True)
    if vhost is not None:
        found_vhost(topology, vhost)
    return await each(export_steps(topology, __version__, vhost), _encoded)


def _encoded(part: str | None) -> bytes | None:
    return None if part is None else part.encode()


async def planned(metadata: ManagedMetadata, wanted: Definitions, *, prune: bool = False) -> Difference:
    """What `import_definitions` would change; nothing is changed."""
    request = _Import(wanted, prune)
    topology = await request.look(metadata.aside())
    await trio.to_thread.run_sync(request.compare, topology)
    return request.found


def refuse_conflicts(found: Difference, so: str) -> None:
    """Raises Conflicting; `so` is what follows from it."""
    count = len(found.conflicts)
    if count:
        things = "1 thing of the file conflicts" if count == 1 else f"{count} things of the file conflict"
        raise Conflicting(f"{things} with what is here, and {so}; --skip-conflicts goes on without", found)


def refuse_impossible(found: Difference) -> None:
    """Refuses a document that names what cannot be made. Raises ImpossibleDefinitions."""
    if found.impossible:
        named = found.impossible[:NAMED_MAX]
        rest = len(found.impossible) - len(named)
        more = f"; and {rest} more" if rest else ""
        raise ImpossibleDefinitions(
            f"nothing was imported, since not all of it can be made: {'; '.join(named)}{more}"
        )


async def import_definitions(
    metadata: ManagedMetadata,
    wanted: Definitions,
    *,
    prune: bool = False,
    skip_conflicts: bool = False,
    as_rabbitmq: bool = False,
    place: Place = unplaced,
) -> Difference:
    """What was changed. `place`: where a new queue goes. With `prune`, what the document does not name is
    removed, in the sections that it has. With `skip_conflicts`, what exists otherwise stays as it is, and what cannot
    be made is left out; `as_rabbitmq` raises ImpossibleDefinitions for that; without both, it raises Conflicting."""
    metadata = metadata.aside()
    request = _Import(wanted, prune, place)
    await request.look(metadata)

    def plan(topology: Topology) -> Plan:
        request.compare(topology)
        if as_rabbitmq:
            refuse_impossible(request.found)
        elif not skip_conflicts:
            refuse_conflicts(request.found, "nothing was changed")
        durable = [each for each in request.found.changes if not request.is_transient(each)]
        return Plan(durable, _requires(durable, topology))

    await metadata.change(plan, whole=True)
    transient, places_gone = await trio.to_thread.run_sync(request.left_to_do)
    if transient:
        await metadata.change_transients(transient)
    if places_gone:
        await metadata.sweep()
    return request.found


@dataclass
class _Import:
    wanted: Definitions
    prune: bool
    place: Place = unplaced
    found: Difference = field(default_factory=Difference)
    live: frozenset[Key] = frozenset()
    """what the running broker has and the store has not"""
    running: bool = False

    async def look(self, metadata: ManagedMetadata) -> Topology:
        """What there is, a copy."""
        live = await metadata.transients()
        self.running = live is not None
        self.live = frozenset(record.key for record in live or [])
        topology = await metadata.read(whole=True)
        # Away from the loop: a broker has other things to do in the tenth of a second that each of them takes.
        known = {name: user.password_hash for name, user in topology.users.items()}
        await trio.to_thread.run_sync(_hash_passwords, self.wanted, known)
        return topology

    def compare(self, topology: Topology) -> None:
        self.found = difference(
            topology, self.wanted, partial(secrets.randbits, 63), prune=self.prune, place=self.place
        )
        if not self.running:
            self._leave_transients_out()

    def is_transient(self, each: Change) -> bool:
        return not each.record.durable if isinstance(each, Put) else each.key in self.live

    def left_to_do(self) -> tuple[list[Change], bool]:
        """Behind what is durable: what is not, and whether what was within something that went has to go."""
        transient = [each for each in self.found.changes if self.is_transient(each)]
        return transient, any(step.action == "remove" and step.section in PLACES for step in self.found.steps)

    def _leave_transients_out(self) -> None:
        transient = [step for step in self.found.steps if step.action == "create" and not step.record.durable]
        if transient:
            gone = {id(step) for step in transient}
            self.found.steps = [step for step in self.found.steps if id(step) not in gone]
            self.found.left_out.append(
                f"{len(transient)} transient queues, exchanges and bindings: they need a broker that runs"
            )


def _hash_passwords(wanted: Definitions, known: dict[str, str]) -> None:
    """A password in clear text that is right already is no difference."""
    for name, password in wanted.passwords.items():
        stored = known.get(name)
        if stored is None or not verify_password(stored, password.encode()):
            stored = hash_password(password.encode())
        user = wanted.records["users"]["user", name]
        assert isinstance(user, UserRecord)
        wanted.records["users"]["user", name] = replace(user, password_hash=stored)


def _requires(changes: Sequence[Change], topology: Topology) -> Iterable[Key]:
    """The ends of new bindings, and virtual hosts, that must still be there; not those that are made along."""
    made = {each.record.key for each in changes if isinstance(each, Put)}
    bindings = [each.record for each in changes if isinstance(each, Put) and isinstance(each.record, BindingRecord)]
    ends = chain.from_iterable(
        (("exchange", each.vhost, each.source), (each.destination_type, each.vhost, each.destination))
        for each in bindings
    )
    vhosts = (("vhost", each.record.key[1]) for each in changes if isinstance(each, Put) and _is_within(each.record))
    return {key for key in chain(ends, vhosts) if key not in made}


def _is_within(record: Record) -> bool:
    """In a virtual host."""
    return bool(getattr(record, "vhost", ""))
