"""`amqpd definitions`: everything that exists, to a file and from a file.

What comes in: a file in RabbitMQ's format. What goes out: files; what was changed, or would be, in words.
Rules: 1. A file with password hashes is readable by its owner only. 2. In a cluster the queues of an import are
spread over the nodes that live; while none lives a classic queue has no node yet: the nodes claim it.
Not here: the format and the comparison (`amqpd/definitions/`), what is exported and changed
(`amqpd/management/metadata/definitions.py`).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from amqpd.cluster.choosing import Heard, ImportedQueues
from amqpd.cluster.placement import ranked
from amqpd.commands.cluster_store import OpenedClusterStore, in_store, queues_of
from amqpd.commands.metadata import carry_out, cluster_settings
from amqpd.commands.options import data_dir_option, together
from amqpd.commands.refusals import refusals
from amqpd.definitions.description import describe, describe_conflicts, describe_left_out, difference_as_json, summary
from amqpd.definitions.difference import Place, unplaced
from amqpd.definitions.document import BadDefinitions, Definitions, read_definitions
from amqpd.definitions.export import explanation_in
from amqpd.management.metadata import definitions as use_cases
from amqpd.management.metadata.imported_queues import placed_in_cluster
from amqpd.vocabulary.escapes import escaped, readable_json
from amqpd.vocabulary.records import QueueRecord

# A million queues with some arguments; it is read into memory whole, several times over.
FILE_BYTES_MAX = 256 << 20
# Mistakes of a file that are shown; the rest is counted.
PROBLEMS_SHOWN_MAX = 20


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
@click.option("--for-rabbitmq", is_flag=True, help="Not if RabbitMQ could not check a user's password.")
@data_dir_option
def export_definitions(file: Path, vhost: str | None, for_rabbitmq: bool, data_dir: Path) -> None:
    """Write all definitions to FILE; - is standard output.

    Two exports of the same definitions are equal, byte for byte, so they can be compared and kept in a
    repository; but the file has password hashes in it. Exclusive queues, and names that begin with amq., are
    not in it. What is not durable is in it while the broker runs.

    A password that came from RabbitMQ goes out as it came. RabbitMQ cannot check those that were set here
    (argon2): it takes such users, and they need a new password there, or one set here with `amqpd user passwd
    NAME --for-rabbitmq` before. --for-rabbitmq refuses to write a file with users that RabbitMQ would lock out.

    \b
    Examples:
      amqpd definitions export all.json
      amqpd definitions export orders.json --vhost orders
      amqpd definitions export all.json --for-rabbitmq
    """
    text = carry_out(data_dir, use_cases.exported, vhost)
    if for_rabbitmq and (explanation := explanation_in(text)) is not None:
        raise click.ClickException(escaped(f"nothing was written: {explanation}"))
    if str(file) == "-":
        click.echo(text, nl=False)
    else:
        write(file, text)
        click.echo(f"wrote {file}")
    warn_of(text)


def warn_of(text: str) -> None:
    """What RabbitMQ will not do with an export."""
    explanation = explanation_in(text)
    if explanation is not None:
        click.echo(escaped(f"(warning) {explanation}"), err=True)


import_options = together(
    click.argument("file", type=click.Path(path_type=Path, allow_dash=True)),
    data_dir_option,
    click.option("--json", "as_json", is_flag=True, help="Print a JSON object, for programs."),
    click.option("--full", is_flag=True, help="Show each thing, however many there are."),
    click.option(
        "--skip-conflicts",
        is_flag=True,
        help="Leave queues and exchanges as they are where the file says otherwise, and go on.",
    ),
    click.option("--prune", is_flag=True, help="Remove what the file does not name, in the sections that it has."),
    click.option("--vhost", help="Import into this virtual host, and only what is for it."),
)


@definitions.command()
@import_options
def plan(
    file: Path, vhost: str | None, prune: bool, skip_conflicts: bool, full: bool, as_json: bool, data_dir: Path
) -> None:
    """Show what importing FILE would change, and change nothing.

    + is made, ~ becomes otherwise, - goes, ! is a conflict: a queue or an exchange that exists, but not as
    the file says. It ends with exit code 1 when there are conflicts that would stop the import.

    \b
    Examples:
      amqpd definitions plan all.json
      amqpd definitions plan all.json --prune --full
      amqpd definitions plan all.json --json
    """
    wanted = read_file(file, vhost)
    found = carry_out(data_dir, use_cases.planned, wanted, prune=prune)
    if as_json:
        click.echo(readable_json(difference_as_json(found, full), 2))
    else:
        _show(wanted, describe(found, full))
    if not skip_conflicts:
        with _conflicts():
            use_cases.refuse_conflicts(found, "an import would change nothing")


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
    as_json: bool,
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

    In a cluster new queues are spread over the nodes that live, quorum queues over those that lead some already.

    \b
    Examples:
      amqpd definitions import all.json
      amqpd definitions import all.json --prune --dry-run
      amqpd definitions import orders.json --vhost orders-test
    """
    if dry_run:
        context.invoke(plan, **{name: value for name, value in context.params.items() if name != "dry_run"})
        return
    wanted = read_file(file, vhost)
    with _conflicts():
        found = carry_out(
            data_dir,
            use_cases.import_definitions,
            wanted,
            prune=prune,
            skip_conflicts=skip_conflicts,
            place=placing_for(data_dir),
        )
    if as_json:
        click.echo(readable_json({**difference_as_json(found, full), "summary": summary(found, done=True)}, 2))
        return
    _show(wanted, describe(found, full)[:-1] if full else describe_left_out(found))
    click.echo(summary(found, done=True))


@contextmanager
def _conflicts() -> Iterator[None]:
    """Each of them is named before the sentence that says how many there are."""
    try:
        with refusals():
            yield
    except click.ClickException as error:
        if isinstance(error.__cause__, use_cases.Conflicting):
            for line in describe_conflicts(error.__cause__.found):
                click.echo(line, err=True)
        raise


def read_file(file: Path, vhost: str | None) -> Definitions:
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


def write(file: Path, text: str) -> None:
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


def _show(wanted: Definitions, lines: list[str]) -> None:
    for line in lines:
        click.echo(line)
    for warning in wanted.warnings:
        click.echo(f"(warning) {escaped(warning)}", err=True)


def placing_for(data_dir: Path) -> Place:
    """What is returned raises Unavailable. Raises ClickException, StartupError."""
    settings = cluster_settings(data_dir)
    if settings is None:
        return unplaced
    copies = settings.cluster_copies

    async def read(opened: OpenedClusterStore) -> tuple[Heard, Counter[int]]:
        roster = opened.roster
        heard = Heard("", roster.members, roster.known, roster.records, roster.linkage)
        return heard, (await queues_of(opened, copies)).count

    heard, queues = in_store(settings, read)
    if not heard.living:
        return unplaced
    nodes = heard.usable() or heard.living

    def node_of(record: QueueRecord) -> str:
        return ranked(f"{record.vhost}/{record.name}", nodes)[0]

    return placed_in_cluster(ImportedQueues(heard, queues, copies).source_for, node_of)
