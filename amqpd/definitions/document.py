"""A definition file, read: every thing in it as a record, or a list of what is wrong with it.

What comes in: the text of a file that RabbitMQ or amqpd wrote (or a person), of a whole broker or of one virtual
host. What goes out: `Definitions`.
Rules: 1. All mistakes are told at once, each with its place; a file with mistakes is not used at all. 2. What
RabbitMQ passes over in a file is passed over here too, but listed in `left_out`. 3. The spellings of RabbitMQ 3.x and
4.x are all read: tags as a list or with commas, objects as lists of pairs.
Not here: reading each kind of thing (`items.py`), what is there already (`difference.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from amqpd.definitions.items import ItemError, Items
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
# A value of a field table, in an argument, in a thing, in a section; objects may be written as lists of pairs.
LEVELS_MAX = 3 * NESTING_MAX + 8


class BadDefinitions(ValueError):
    """The file cannot be used; `problems` says why, one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass
class Definitions:
    """What a file says. `records`: by section, then by key; queues have the id 0. `named` are the sections that the
    file has, be they empty. `passwords` are those that stand in the file in clear text, by user. `left_out`: what of
    the file is not taken, one sentence each; `warnings`: what is taken and worth a thought."""

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
    try:
        file = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadDefinitions([f"the file is not JSON: {error}"]) from None
    if not isinstance(file, dict):
        raise BadDefinitions(["the file is not a JSON object: it is no definition file"])
    if _deeper(file, LEVELS_MAX):
        raise BadDefinitions([f"the file is nested deeper than {LEVELS_MAX} levels"])
    return _Reading(file, vhost).definitions()


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
    def __init__(self, file: dict[str, Any], vhost: str | None) -> None:
        self._file = file
        self._read = Definitions(vhost)
        self._problems: list[str] = []
        version = file.get("rabbitmq_version", file.get("rabbit_version", ""))
        self._items = Items(version if isinstance(version, str) else "", vhost, self._read.warnings)

    def definitions(self) -> Definitions:
        read, items = self._read, self._items
        for name in self._file:
            if name not in SECTIONS and name not in _ABOUT:
                read.left_out.append(f"'{name}': no section of a definition file that is known here")
        readers: Mapping[str, Callable[[dict[str, Any]], Record]] = {
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
        for section, reader in readers.items():
            if section in self._file and (read.vhost is None or section in SECTIONS_OF_VHOST):
                self._section(section, reader)
        read.passwords.update(items.passwords)
        read.bare_vhosts |= items.bare_vhosts
        self._limits_of_vhosts()
        if self._problems:
            raise BadDefinitions(self._problems)
        return read

    def _section(self, section: str, reader: Callable[[dict[str, Any]], Record]) -> None:
        self._read.named.add(section)
        if section == "parameters":
            self._read.named.add("operator_policies")
        found = self._file[section]
        if not isinstance(found, list):
            self._problems.append(f"{section} is not a list")
            return
        for number, item in enumerate(found):
            place = f"{section}[{number}]"
            if not isinstance(item, dict):
                self._problems.append(f"{place} is not an object")
                continue
            if self._read.vhost is not None and item.get("vhost", self._read.vhost) != self._read.vhost:
                continue
            try:
                record = reader(item)
            except ItemError as error:
                subject = item.get("name")
                named = f" ('{subject}')" if isinstance(subject, str) else ""
                if error.left_out:
                    self._read.left_out.append(f"{place}{named}: {error}")
                else:
                    self._problems.append(f"{place}{named}: {error}")
                continue
            self._add(section, place, record)

    def _add(self, section: str, place: str, record: Record) -> None:
        if record.key[0] == "operator-policy":
            section = "operator_policies"
        before = self._read.records[section].setdefault(record.key, record)
        if before != record:
            self._problems.append(f"{place}: the same thing stands in the file twice, with different words")

    def _limits_of_vhosts(self) -> None:
        """The limits of a virtual host are a parameter, and stand with the virtual host for people only; a file that
        has them only there is meant all the same."""
        parameters = self._read.records["parameters"]
        for name, limits in self._items.vhost_limits.items():
            parameter = ParameterRecord(name, VHOST_LIMITS, LIMITS, limits)
            if limits and "parameters" not in self._read.named:
                parameters.setdefault(parameter.key, parameter)
