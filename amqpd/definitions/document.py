"""A definition file, read: every thing in it as a record, or a list of what is wrong with it.

What comes in: the text of a file that RabbitMQ or amqpd wrote (or a person), of a whole broker or of one virtual
host. What goes out: `Definitions`.
Rules: 1. All mistakes are told at once, each with its place, up to a bound; a file with mistakes is not used at all.
2. What RabbitMQ passes over in a file is passed over here too, but listed in `left_out`. 3. The spellings of RabbitMQ
3.x and 4.x are all read: tags as a list or with commas, objects as lists of pairs.
Not here: reading each kind of thing (`items.py`), what is there already (`difference.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from amqpd.definitions.items import TWICE, ItemError, Items
from amqpd.definitions.pieces import NotJson, Pieces, TooLarge
from amqpd.topology.limit_keys import LIMITS, VHOST_LIMITS
from amqpd.vocabulary.records import BindingRecord, Key, ParameterRecord, Record
from amqpd.wire.values import NESTING_MAX

# As RabbitMQ's loading order: what others depend on goes first. Operator policies are parameters in a file.
SECTIONS = (
    "vhosts",
    "users",
    "permissions",
    "topic_permissions",
    "global_parameters",
    "parameters",
    "policies",
    "operator_policies",
    "exchanges",
    "queues",
    "bindings",
)
# What a file of one virtual host has of it.
SECTIONS_OF_VHOST = ("parameters", "policies", "operator_policies", "exchanges", "queues", "bindings")
# Said about the file, not in it; nothing is done with them (as in RabbitMQ).
_ABOUT = frozenset(
    {
        "rabbit_version",
        "rabbitmq_version",
        "product_name",
        "product_version",
        "rabbitmq_definition_format",
        "original_cluster_name",
        "original_vhost_name",
        "explanation",
        "metadata",
        "description",
        "limits",
        "default_queue_type",
    }
)
VERSIONS = ("rabbitmq_version", "rabbit_version")
# Mistakes that are told of one file: one of 4 MB may have two million.
PROBLEMS_MAX = 1_000
# Members of a file that are no sections. RabbitMQ's plugins add a few.
UNKNOWN_MAX = 1_000
# A value of a field table, in an argument, in a thing, in a section; objects may be written as lists of pairs.
LEVELS_MAX = 3 * NESTING_MAX + 8


class BadDefinitions(ValueError):
    """The file cannot be used; `problems` says why, one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass
class Definitions:
    """The contents of a definition file. `records`: by section, then by key; queues have the id 0. `named` are the
    sections that the file has, be they empty. `passwords` are those that stand in the file in clear text, by user.
    `left_out`: what of the file is not taken, one sentence each; `warnings`: what is taken and worth a thought."""

    vhost: str | None = None
    """when it is the file of one virtual host, or is taken as such"""
    records: dict[str, dict[Key, Record]] = field(default_factory=lambda: {section: {} for section in SECTIONS})
    named: set[str] = field(default_factory=set)
    passwords: dict[str, str] = field(default_factory=dict)
    bare_vhosts: set[str] = field(default_factory=set)
    """those of which the file says nothing but the name"""
    left_out: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def bindings(self) -> Iterator[BindingRecord]:
        for record in self.records["bindings"].values():
            assert isinstance(record, BindingRecord)
            yield record


def read_definitions(text: str | bytes, vhost: str | None = None) -> Definitions:
    """The definitions in the file; with `vhost`, only what belongs into it: things that name it, and things that
    name none (the file of one virtual host names it nowhere, so that it can be taken to another). Raises
    BadDefinitions."""
    reading = _Reading(vhost)
    try:
        for name, number, value in Pieces(text, _no_number):
            reading.take(name, number, value)
    except NotJson as error:
        raise BadDefinitions([f"the file is not JSON: {error}"]) from None
    except TooLarge as error:
        raise BadDefinitions([f"the file is too large: {error}"]) from None
    return reading.definitions()


def _deeper(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels):
        level = [
            member
            for each in level
            if isinstance(each, dict | list)
            for member in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number in JSON")


class _Reading:
    """Things as they come. Those that mean something else by what comes behind them are held until the end: RabbitMQ
    and amqpd write what others depend on first."""

    def __init__(self, vhost: str | None) -> None:
        self._read = Definitions(vhost)
        self._problems: list[tuple[int, int, str]] = []
        """section, number, sentence"""
        self._items = items = Items(vhost, self._read.warnings)
        self._readers: Mapping[str, Callable[[dict[str, Any]], Record]] = {
            "vhosts": items.vhost,
            "users": items.user,
            "permissions": items.permission,
            "topic_permissions": items.topic_permission,
            "global_parameters": items.global_parameter,
            "parameters": items.parameter,
            "policies": items.policy,
            "exchanges": items.exchange,
            "queues": items.queue,
            "bindings": items.binding,
        }
        self._held: dict[str, list[tuple[int, Any]]] = {}
        self._said: set[str] = set()
        """members that have begun"""
        self._unknown = 0
        """of these, what is no section and nothing about the file"""

    def take(self, name: str, number: int | None, value: Any) -> None:
        """Raises BadDefinitions for what is no definition file at all."""
        if not name and not self._said:
            raise BadDefinitions(["the file is not a JSON object: it is no definition file"])
        if _deeper(value, LEVELS_MAX):
            raise BadDefinitions([f"the file is nested deeper than {LEVELS_MAX} levels"])
        first = name not in self._said
        self._said.add(name)
        if name in VERSIONS and isinstance(value, str):
            self._items.written_by(value)
        elif name not in self._readers:
            if first and name not in SECTIONS and name not in _ABOUT:
                self._unknown += 1
                if self._unknown > UNKNOWN_MAX:
                    raise BadDefinitions(
                        [f"the file has more than {UNKNOWN_MAX} members that no definition file has"]
                    )
                self._read.left_out.append(f"'{name}': no section of a definition file that is known here")
        elif self._read.vhost is None or name in SECTIONS_OF_VHOST:
            self._begin(name)
            if number is None:
                if value != []:
                    self._problem(name, -1, f"{name} is not a list")
            elif self._waits(name):
                self._held.setdefault(name, []).append((number, value))
            else:
                self._item(name, number, value)

    def definitions(self) -> Definitions:
        """When all have been taken."""
        for name in self._readers:
            for number, value in self._held.pop(name, ()):
                self._item(name, number, value)
        read, items = self._read, self._items
        read.passwords.update(items.passwords)
        read.bare_vhosts |= items.bare_vhosts
        self._limits_of_vhosts()
        if self._problems:
            raise BadDefinitions([sentence for _, _, sentence in sorted(self._problems)])
        return read

    def _begin(self, section: str) -> None:
        self._read.named.add(section)
        if section == "parameters":
            self._read.named.add("operator_policies")

    def _waits(self, section: str) -> bool:
        if section == "users":
            return self._said.isdisjoint(VERSIONS)
        return section == "queues" and self._read.vhost is None and "vhosts" not in self._said

    def _item(self, section: str, number: int, item: Any) -> None:
        place = f"{section}[{number}]"
        if not isinstance(item, dict):
            self._problem(section, number, f"{place} is not an object")
            return
        if self._read.vhost is not None and item.get("vhost", self._read.vhost) != self._read.vhost:
            return
        try:
            record = self._readers[section](item)
        except ItemError as error:
            subject = item.get("name")
            named = f" ('{subject}')" if isinstance(subject, str) else ""
            if error.left_out:
                self._read.left_out.append(f"{place}{named}: {error}")
            else:
                self._problem(section, number, f"{place}{named}: {error}")
            return
        self._add(section, number, record)

    def _problem(self, section: str, number: int, sentence: str) -> None:
        self._problems.append((SECTIONS.index(section), number, sentence))
        if len(self._problems) >= PROBLEMS_MAX:
            so_many = f"the first {PROBLEMS_MAX} mistakes of the file, which was read no further"
            raise BadDefinitions([so_many, *(said for _, _, said in sorted(self._problems))])

    def _add(self, section: str, number: int, record: Record) -> None:
        into = "operator_policies" if record.key[0] == "operator-policy" else section
        before = self._read.records[into].setdefault(record.key, record)
        if before != record:
            self._problem(section, number, f"{section}[{number}]: {TWICE}")

    def _limits_of_vhosts(self) -> None:
        """The limits of a virtual host are a parameter, and stand with the virtual host for people only; a file that
        has them only there is meant all the same."""
        parameters = self._read.records["parameters"]
        for name, limits in self._items.vhost_limits.items():
            parameter = ParameterRecord(name, VHOST_LIMITS, LIMITS, limits)
            if limits and "parameters" not in self._read.named:
                parameters.setdefault(parameter.key, parameter)
