"""`amqpd definitions`: everything that exists, to a file and from a file, in RabbitMQ's format.

What comes in: files; flags. What goes out: files; changed records; plans in words.
Rules: 1. All or nothing: a file with a mistake, or with a conflict that was not waved through, changes nothing. 2.
Durable things go through the metadata store, whether a broker runs or not; transient ones need a running broker, and
are left out without one. 3. A file with password hashes is readable by its owner only.
Not here: the format and the comparison (`amqpd/definitions/`), how a change reaches the broker (`metadata.py`).
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import click

from amqpd import __version__
from amqpd.commands.metadata import Plan, change, data_dir_option, found_vhost, read, sweep
from amqpd.commands.running import ANSWER_TIMEOUT_S
from amqpd.definitions.description import describe, describe_conflicts, describe_left_out, summary
from amqpd.definitions.difference import Difference, difference
from amqpd.definitions.document import BadDefinitions, Definitions, read_definitions
from amqpd.definitions.export import export_text
from amqpd.management import control
from amqpd.security.authentication.passwords import hash_password, verify_password
from amqpd.topology.metadata.codec import decode_record, encode_key, encode_record
from amqpd.topology.metadata.store import StoreDamaged
from amqpd.topology.state import Topology
from amqpd.vocabulary.escapes import escaped
from amqpd.vocabulary.records import BindingRecord, Change, Key, Put, Record, UserRecord

# A million queues with some arguments; it is read into memory whole, several times over.
FILE_BYTES_MAX = 256 << 20
# Mistakes of a file that are shown; the rest is counted.
PROBLEMS_SHOWN_MAX = 20
# Changes of transient things in one command of the control socket: so many, or so many characters, as its line holds
# 4 MiB.
TRANSIENTS_A_COMMAND = 500
CHARACTERS_A_COMMAND = 1 << 20


@click.group()
def definitions() -> None:
    """Write everything that exists to a file, and make a broker have what a file says.

    The format is RabbitMQ's (rabbitmqctl export_definitions, or /api/definitions): its files are read here,
    and RabbitMQ reads those that are written here. In it are virtual hosts, users with their password hashes,
    permissions, policies, parameters, limits, exchanges, queues and bindings; messages are not.

    \b
    Example, move from RabbitMQ:
      rabbitmqctl export_definitions all.json
      amqpd definitions plan all.json
      amqpd definitions import all.json
    """


@definitions.command("export")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--vhost", help="Only what is in this virtual host.")
@data_dir_option
def export_definitions(file: Path, vhost: str | None, data_dir: Path) -> None:
    """Write all definitions to FILE; - is standard output.

    Two exports of the same definitions are equal, byte for byte, so they can be compared and kept in a
    repository; but the file has password hashes in it. Exclusive queues, and names that begin with amq., are
    not in it. What is not durable is in it while the broker runs.

    A password that came from RabbitMQ goes out as it came. RabbitMQ cannot check those that were set here
    (argon2): it takes such users, and they need a new password there.

    \b
    Examples:
      amqpd definitions export all.json
      amqpd definitions export orders.json --vhost orders
    """
    topology = _with_live(read(data_dir), _live_records(data_dir) or [])
    if vhost is not None:
        found_vhost(topology, vhost)
    text = export_text(topology, __version__, vhost)
    if str(file) == "-":
        click.echo(text, nl=False)
    else:
        _write(file, text)
        click.echo(f"wrote {file}")


def import_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--vhost", help="Import into this virtual host, and only what is for it."),
        click.option(
            "--prune", is_flag=True, help="Remove what the file does not name, in the sections that it has."
        ),
        click.option(
            "--skip-conflicts",
            is_flag=True,
            help="Leave queues and exchanges as they are where the file says otherwise, and go on.",
        ),
        click.option("--full", is_flag=True, help="Show each thing, however many there are."),
    ):
        command = option(command)
    return click.argument("file", type=click.Path(path_type=Path, allow_dash=True))(data_dir_option(command))


@definitions.command()
@import_options
def plan(file: Path, vhost: str | None, prune: bool, skip_conflicts: bool, full: bool, data_dir: Path) -> None:
    """Show what importing FILE would change, and change nothing.

    + is made, ~ becomes otherwise, - goes, ! is a conflict: a queue or an exchange that exists, but not as
    the file says. It ends with exit code 1 when there are conflicts that would stop the import.

    \b
    Examples:
      amqpd definitions plan all.json
      amqpd definitions plan all.json --prune --full
    """
    wish = _Import(_read_file(file, vhost), prune, skip_conflicts)
    wish.look(data_dir)
    _show(wish, describe(wish.found, full))
    wish.refuse_conflicts("an import would change nothing")


@definitions.command("import")
@import_options
@click.option("--dry-run", is_flag=True, help="The same as `amqpd definitions plan`.")
@click.pass_context
def import_definitions(
    context: click.Context,
    file: Path,
    vhost: str | None,
    prune: bool,
    skip_conflicts: bool,
    full: bool,
    dry_run: bool,
    data_dir: Path,
) -> None:
    """Make the broker have what FILE says; - is standard input.

    Users, permissions, policies, parameters and virtual hosts become as the file says. Queues and exchanges
    are made when they are not there; those that are there are never changed: when one is otherwise than in
    the file, all conflicts are named and nothing is changed at all, unless --skip-conflicts says to leave
    them and go on (which is what RabbitMQ does, without a word).

    With --prune, what the file does not name is removed, in the sections that the file has: durable things
    only, no names that begin with amq., and never the last administrator. Look at the plan first: queues go
    with their messages.

    The file of one virtual host (amqpd definitions export --vhost) goes into the one that --vhost names.

    \b
    Examples:
      amqpd definitions import all.json
      amqpd definitions import all.json --prune --dry-run
      amqpd definitions import orders.json --vhost orders-test
    """
    if dry_run:
        context.invoke(
            plan, file=file, vhost=vhost, prune=prune, skip_conflicts=skip_conflicts, full=full, data_dir=data_dir
        )
        return
    wish = _Import(_read_file(file, vhost), prune, skip_conflicts)
    wish.carry_out(data_dir)
    _show(wish, describe(wish.found, full)[:-1] if full else describe_left_out(wish.found))
    click.echo(summary(wish.found, done=True))


@dataclass
class _Import:
    wanted: Definitions
    prune: bool
    skip_conflicts: bool
    found: Difference = field(default_factory=Difference)
    live: dict[Key, Record] = field(default_factory=dict)
    """what the running broker has and the store has not"""
    running: bool = False
    _hashes: dict[str, str] = field(default_factory=dict)

    def look(self, data_dir: Path) -> None:
        self._ask(data_dir)
        self._compare(read(data_dir))

    def carry_out(self, data_dir: Path) -> None:
        """Raises ClickException."""
        self._ask(data_dir)

        def plan(topology: Topology) -> Plan:
            self._compare(topology)
            self.refuse_conflicts("nothing was changed")
            durable = [each for each in self.found.changes if not self._is_transient(each)]
            return Plan(durable, _requires(durable, topology))

        change(data_dir, plan)
        self._change_transients(data_dir)
        if any(step.action == "remove" and step.section in ("vhosts", "users") for step in self.found.steps):
            sweep(data_dir)

    def refuse_conflicts(self, so: str) -> None:
        count = len(self.found.conflicts)
        if count and not self.skip_conflicts:
            for line in describe_conflicts(self.found):
                click.echo(line, err=True)
            things = "1 thing of the file conflicts" if count == 1 else f"{count} things of the file conflict"
            raise click.ClickException(f"{things} with what is here, and {so}; --skip-conflicts goes on without")

    def _ask(self, data_dir: Path) -> None:
        live = _live_records(data_dir)
        self.running = live is not None
        self.live = {record.key: record for record in live or []}

    def _compare(self, topology: Topology) -> None:
        topology = _with_live(topology, self.live.values())
        self._hash_passwords(topology)
        self.found = difference(topology, self.wanted, lambda: secrets.randbits(63), prune=self.prune)
        if not self.running:
            self._leave_transients_out()

    def _hash_passwords(self, topology: Topology) -> None:
        """A password in clear text that is right already is no difference."""
        for name, password in self.wanted.passwords.items():
            known = topology.users.get(name)
            if known is not None and verify_password(known.password_hash, password.encode()):
                stored = known.password_hash
            else:
                stored = self._hashes.get(name) or hash_password(password.encode())
            self._hashes[name] = stored
            user = self.wanted.records["users"]["user", name]
            assert isinstance(user, UserRecord)
            self.wanted.records["users"]["user", name] = replace(user, password_hash=stored)

    def _leave_transients_out(self) -> None:
        transient = [step for step in self.found.steps if step.action == "create" and not step.record.durable]
        if transient:
            gone = {id(step) for step in transient}
            self.found.steps = [step for step in self.found.steps if id(step) not in gone]
            self.found.left_out.append(
                f"{len(transient)} transient queues, exchanges and bindings: they need a broker that runs"
            )

    def _is_transient(self, each: Change) -> bool:
        return not each.record.durable if isinstance(each, Put) else each.key in self.live

    def _change_transients(self, data_dir: Path) -> None:
        for wish in _commands(each for each in self.found.changes if self._is_transient(each)):
            if control.call(data_dir, "transients change", wish, ANSWER_TIMEOUT_S) is None:
                raise click.ClickException("the broker ended during the import: transient things are missing")


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


def _commands(changes: Iterable[Change]) -> Iterator[dict[str, list[Any]]]:
    """The changes in their order, as the arguments of commands that fit in a line each."""
    wish: dict[str, list[Any]] = {"put": [], "delete": []}
    count = characters = 0
    for each in changes:
        if isinstance(each, Put):
            text = encode_record(each.record)
            wish["put"].append({"key": encode_key(each.record.key), "record": text})
            characters += len(text)
        else:
            wish["delete"].append(encode_key(each.key))
        count += 1
        if count == TRANSIENTS_A_COMMAND or characters >= CHARACTERS_A_COMMAND:
            yield wish
            wish = {"put": [], "delete": []}
            count = characters = 0
    if count:
        yield wish


def _live_records(data_dir: Path) -> list[Record] | None:
    """What the running broker alone knows; None when none runs."""
    rows = control.rows(data_dir, "transients list", timeout_s=ANSWER_TIMEOUT_S)
    try:
        return None if rows is None else [decode_record(row["key"], row["record"]) for row in rows]
    except StoreDamaged as error:
        # A field table of 256 KiB and more is not listed.
        raise click.ClickException(f"what is not durable in the running broker cannot be read: {error}") from None


def _with_live(topology: Topology, live: Iterable[Record]) -> Topology:
    topology.apply([Put(record) for record in live])
    return topology


def _read_file(file: Path, vhost: str | None) -> Definitions:
    try:
        with sys.stdin.buffer if str(file) == "-" else file.open("rb") as source:
            text = source.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise click.ClickException(f"cannot read {file}: {error.strerror}") from None
    if len(text) > FILE_BYTES_MAX:
        raise click.ClickException(f"{file} is longer than {FILE_BYTES_MAX} bytes")
    try:
        return read_definitions(text.removeprefix(b"\xef\xbb\xbf"), vhost)
    except BadDefinitions as error:
        for problem in error.problems[:PROBLEMS_SHOWN_MAX] if len(error.problems) > 1 else ():
            click.echo(escaped(f"! {problem}"), err=True)
        count = len(error.problems)
        what = error.problems[0] if count == 1 else f"{count} things in it are wrong"
        raise click.ClickException(f"{file} cannot be imported: {what}") from None


def _write(file: Path, text: str) -> None:
    """Whole or not at all."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as target:
                target.write(text)
            os.replace(name, file)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error.strerror}") from None


def _show(wish: _Import, lines: list[str]) -> None:
    for line in lines:
        click.echo(line)
    for warning in wish.wanted.warnings:
        click.echo(f"(warning) {escaped(warning)}", err=True)
