"""What would have to change for a broker to have what a definition file says.

What comes in: a topology, definitions. What goes out: a `Difference`: steps with the changes of records that make
them, things that are as they are, conflicts, and what has to be left out.
Rules: 1. Users, permissions, policies, parameters and virtual hosts become as the file says. An exchange or a queue
that exists is never changed: when it is another one, that is a conflict (RabbitMQ passes over it in silence). 2.
Compared is the JSON, so what a file cannot express is no difference. 3. `prune` takes away what the file does not
name, in the sections that the file has: durable things only, nothing that begins with `amq.`, and never the last
administrator. 4. Changes are in an order in which nothing depends on what comes later.
Not here: the comparison of single things (`comparison.py`), taking away (`pruning.py`), words (`description.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import islice
from typing import Any, Literal

from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.definitions.comparison import (
    binding_identity,
    differences,
    durable_at_both_ends,
    same,
    thing,
)
from amqpd.definitions.document import SECTIONS, Definitions
from amqpd.definitions.pruning import Pruning
from amqpd.exchanges import check_exchange, new_matcher
from amqpd.queues.arguments import check_dead_letter_exchange, check_declaration
from amqpd.topology.limit_keys import LIMITS, MAX_QUEUES, VHOST_LIMITS, limit_of
from amqpd.topology.plans import create_vhost
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import (
    BindingRecord,
    Change,
    ExchangeRecord,
    Key,
    ParameterRecord,
    PermissionRecord,
    Put,
    QueueRecord,
    Record,
    TopicPermissionRecord,
    VhostRecord,
)

# As `management/pacing.py`: about a millisecond.
SORTED_AT_ONCE = 500

Action = Literal["create", "change", "remove"]


@dataclass(frozen=True, slots=True)
class ImportStep:
    """One change of the topology that an import makes, with words for the operator."""

    section: str
    action: Action
    record: Record
    """as it will be; for `remove`, as it is"""
    changes: tuple[Change, ...]
    detail: str = ""


@dataclass
class Difference:
    """All that an import would change, and what it leaves as it is, with the reasons."""

    steps: list[ImportStep] = field(default_factory=list)
    unchanged: Counter[str] = field(default_factory=Counter)
    """by section"""
    conflicts: list[str] = field(default_factory=list)
    """what exists otherwise, or cannot be made"""
    impossible: list[str] = field(default_factory=list)
    """those of `conflicts` that cannot be made at all"""
    left_out: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """what `prune` would not take away"""

    @property
    def changes(self) -> list[Change]:
        making = [step for step in self.steps if step.action != "remove"]
        removing = [step for step in self.steps if step.action == "remove"]
        making.sort(key=lambda step: SECTIONS.index(step.section))
        removing.sort(key=lambda step: -SECTIONS.index(step.section))
        return [change for step in (*making, *removing) for change in step.changes]


Place = Callable[[QueueRecord], QueueRecord]
"""the record of a new queue with the source or the node that it belongs to"""


def unplaced(record: QueueRecord) -> QueueRecord:
    """The queue of a node that shares its metadata with no other one."""
    return record


def difference(
    topology: Topology,
    wanted: Definitions,
    new_queue_id: Callable[[], int],
    *,
    prune: bool = False,
    place: Place = unplaced,
) -> Difference:
    """Passwords in clear text must have become hashes (`Definitions.passwords`). `place`: where a new queue goes."""
    return _Comparing(topology, wanted, new_queue_id, prune, place).difference()


class _Comparing:
    def __init__(
        self,
        topology: Topology,
        wanted: Definitions,
        new_queue_id: Callable[[], int],
        prune: bool,
        place: Place,
    ) -> None:
        self._place = place
        self._topology = topology
        self._wanted = wanted
        self._new_queue_id = new_queue_id
        self._found = Difference(left_out=list(wanted.left_out))
        self._pruning = Pruning(topology, wanted) if prune else None
        self._ends: dict[Key, ExchangeRecord | QueueRecord] = {}
        """exchanges and queues that will be there"""
        self._vhosts: set[str] = set()
        self._users: set[str] = set()

    def difference(self) -> Difference:
        removed: set[Key] = self._pruning.removed if self._pruning is not None else set()
        self._vhosts = {name for name in self._topology.vhosts if ("vhost", name) not in removed}
        self._users = {name for name in self._topology.users if ("user", name) not in removed}
        for name in sorted(self._vhosts):
            vhost = self._topology.vhosts[name]
            records: list[ExchangeRecord | QueueRecord] = [state.record for state in vhost.exchanges.values()]
            records += vhost.queues.values()
            self._ends |= {record.key: record for record in records if record.key not in removed}
        if self._wanted.vhost is not None and self._wanted.vhost not in self._vhosts:
            self._cannot_make(f"there is no virtual host '{self._wanted.vhost}': add it first")
            return self._found
        self._compare_vhosts()
        self._compare_plain("users", self._topology.users.values())
        self._users |= {key[1] for key in self._wanted.records["users"]}
        self._compare_plain("permissions", self._topology.permissions.values())
        held = (each for by_exchange in self._topology.topic_permissions.values() for each in by_exchange.values())
        self._compare_plain("topic_permissions", held)
        self._compare_plain("global_parameters", self._topology.global_parameters.values())
        vhosts = self._topology.vhosts.values()
        self._compare_plain("parameters", (each for vhost in vhosts for each in vhost.parameters.values()))
        policies = [each for vhost in vhosts for each in vhost.policies.records()]
        self._compare_plain("policies", policies)
        self._compare_plain("operator_policies", policies)
        self._compare_ends("exchanges")
        self._compare_ends("queues")
        self._compare_bindings()
        self._check_queue_limits()
        if self._pruning is not None:
            self._found.kept += self._pruning.kept
            self._found.steps += [
                ImportStep(section, "remove", record, changes, detail)
                for section, record, changes, detail in self._pruning.removals()
            ]
        return self._found

    def _compare_vhosts(self) -> None:
        for record in self._sorted("vhosts"):
            assert isinstance(record, VhostRecord)
            self._vhosts.add(record.name)
            known = self._topology.vhost_records.get(record.name)
            if known is None:
                first, *exchanges = create_vhost(record.name, record.description)
                assert isinstance(first, Put)
                self._step("vhosts", "create", record, (replace(first, record=record), *exchanges))
                self._ends |= {
                    change.record.key: change.record
                    for change in exchanges
                    if isinstance(change, Put) and isinstance(change.record, ExchangeRecord)
                }
            else:
                # A file that says no more than the name leaves the rest as it is.
                self._put("vhosts", known, known if record.name in self._wanted.bare_vhosts else record)

    def _compare_plain(self, section: str, known: Iterable[Record]) -> None:
        """Things that become as the file says."""
        there = {record.key: record for record in known}
        for record in self._sorted(section):
            if (lacking := self._lacking(record)) is None:
                self._put(section, there.get(record.key), record)
            else:
                self._cannot_make(f"{thing(record)}: there is no {lacking}")

    def _lacking(self, record: Any) -> str | None:
        """What the thing belongs to and will not be there."""
        vhost = getattr(record, "vhost", "")
        if vhost and vhost not in self._vhosts:
            return f"virtual host '{vhost}', and the file has none"
        if isinstance(record, PermissionRecord | TopicPermissionRecord) and record.user not in self._users:
            return f"user '{record.user}', and the file has none"
        return None

    def _put(self, section: str, known: Record | None, record: Record) -> None:
        if known is None:
            self._step(section, "create", record, (Put(record, create=True),))
        elif same(known, record):
            self._found.unchanged[section] += 1
        else:
            words = [f"{name} {before} -> {after}" for name, before, after in differences(known, record)]
            self._step(section, "change", record, (Put(record),), ", ".join(words))

    def _compare_ends(self, section: str) -> None:
        """Exchanges and queues: what exists stays as it is."""
        for record in self._sorted(section):
            assert isinstance(record, ExchangeRecord | QueueRecord)
            known = self._ends.get(record.key)
            if known is not None:
                if isinstance(known, QueueRecord) and known.exclusive:
                    self._found.conflicts.append(f"{thing(record)}: a connection has an exclusive one of that name")
                elif same(known, record):
                    self._found.unchanged[section] += 1
                else:
                    words = [
                        f"{name} is {here} here, {file} in the file"
                        for name, here, file in differences(known, record)
                    ]
                    self._found.conflicts.append(f"{thing(record)}: " + ", ".join(words))
                continue
            lacking, refused = self._lacking(record), self._refused(record)
            if lacking is not None or refused is not None:
                self._cannot_make(f"{thing(record)}: {refused or f'there is no {lacking}'}")
                continue
            if isinstance(record, QueueRecord):
                record = self._place(replace(record, id=self._new_queue_id()))
            self._ends[record.key] = record
            self._step(section, "create", record, (Put(record, create=True),))

    def _refused(self, record: ExchangeRecord | QueueRecord) -> str | None:
        """Why it cannot be made here."""
        try:
            if isinstance(record, ExchangeRecord):
                check_exchange(record)
            else:
                check_declaration(record)
                check_dead_letter_exchange(record)
        except AMQPPreconditionFailed as error:
            return str(error)
        return None

    def _compare_bindings(self) -> None:
        there = {binding_identity(each) for vhost in self._topology.vhosts.values() for each in vhost.bindings()}
        for record in self._sorted("bindings"):
            assert isinstance(record, BindingRecord)
            durable = durable_at_both_ends(record, self._ends)
            if durable is None:
                # RabbitMQ's own files have such: bindings of the internal exchanges that it leaves out.
                self._found.left_out.append(f"{thing(record)}: one of its ends is not there, nor in the file")
                continue
            if binding_identity(record) in there:
                self._found.unchanged["bindings"] += 1
                continue
            record = replace(record, durable=durable)
            source = self._ends["exchange", record.vhost, record.source]
            assert isinstance(source, ExchangeRecord)
            end = self._ends[record.destination_type, record.vhost, record.destination]
            try:
                new_matcher(source).validate(record, end if isinstance(end, QueueRecord) else None)
            except AMQPPreconditionFailed as error:
                self._cannot_make(f"{thing(record)}: {error}")
                continue
            self._step("bindings", "create", record, (Put(record, create=True),))

    def _check_queue_limits(self) -> None:
        """As RabbitMQ: an import that would have more queues than the virtual host may have is refused."""
        added = Counter(step.record.key[1] for step in self._found.steps if step.section == "queues")
        for vhost, count in sorted(added.items()):
            parameter = self._wanted.records["parameters"].get(("parameter", vhost, VHOST_LIMITS, LIMITS))
            if isinstance(parameter, ParameterRecord):
                limit = parameter.value.get(MAX_QUEUES)
            else:
                limit = limit_of(self._topology, "vhost", vhost, MAX_QUEUES)
            total = sum(key[0] == "queue" and key[1] == vhost for key in self._ends)
            if limit is not None and 0 <= limit < total:
                self._cannot_make(
                    f"virtual host '{vhost}': {count} more queues would make {total}, its limit is {limit}"
                )

    def _cannot_make(self, sentence: str) -> None:
        self._found.conflicts.append(sentence)
        self._found.impossible.append(sentence)

    def _sorted(self, section: str) -> Iterator[Record]:
        """In runs that are merged: one sort of very many would hold the interpreter for a tenth of a second."""
        records, keys = self._wanted.records[section], iter(self._wanted.records[section])
        runs: list[list[Key]] = []
        while run := sorted(islice(keys, SORTED_AT_ONCE)):
            runs.append(run)
        yield from (records[key] for key in merge(*runs))

    def _step(
        self, section: str, action: Action, record: Record, changes: tuple[Change, ...], detail: str = ""
    ) -> None:
        self._found.steps.append(ImportStep(section, action, record, changes, detail))
