"""`amqpd check`: every damage in the data directory of a broker that does not run, in words; `--repair` mends it.

What comes in: a data directory. What goes out: a line for each finding and a summary, or JSON; the exit code.
Rules: 1. Without --repair no file is changed. 2. Exit codes: 0 nothing is wrong (notes may be there); 3 damage was
found, or a repair left the broker unable to start; 1 and 2 as with other commands, 1 also for what a newer amqpd
wrote, 2 also while a broker runs.
Not here: the check and the repair (`amqpd/checking/`).
"""

from __future__ import annotations

from pathlib import Path

import click

from amqpd.backup.progress import Progress
from amqpd.checking.check import check as check_all
from amqpd.checking.repair import Repaired, RepairError, repair
from amqpd.checking.report import DAMAGE, NEWER, NOTE, Report
from amqpd.commands.backup import shown, watched
from amqpd.commands.options import refuse_one_of_several, this_data_dir_option
from amqpd.datadir.lock import open_data_directory
from amqpd.errors import SettingsError, StartupError
from amqpd.vocabulary.escapes import escaped, readable_json

EXIT_DAMAGE, EXIT_NEWER = 3, 1
DATA = ("journal.db", "journal.db-wal", "journal.mark", "metadata.db", "metadata.mark", "audit")


@click.command()
@click.option("--quick", is_flag=True, help="Leave out the bodies of messages, and the events of the audit log.")
@click.option(
    "--repair",
    "mend",
    is_flag=True,
    help="Rebuild the journal from what is whole. The files as they were are kept in a folder before-repair-...",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object with the list of findings, no progress.")
@this_data_dir_option
@click.pass_context
def check(context: click.Context, quick: bool, mend: bool, as_json: bool, data_dir: Path) -> None:
    """Look for damage in the data directory of a stopped broker: journal, metadata, audit log.

    Everything is read and compared with its checksums, the index with the table, the journal with the metadata.
    Each finding says what it means for the messages, and the way out. No file is changed, unless with --repair.

    A repair builds a new journal of all that fits its checksum, and says what is lost or may come back. Damaged
    messages stay, and their queue stops at them: see `amqpd message quarantine`. Damaged metadata are for
    `amqpd metadata`.

    \b
    Examples:
      amqpd check
      amqpd check --quick
      amqpd --data-dir ./data check --json
      amqpd check --repair

    Exit code 0: nothing is wrong, or the broker can start after the repair; 3: damage was found, or the broker
    cannot start after the repair; 1: a newer amqpd wrote it, whose own check knows more; 2: a broker runs, or wrong
    usage.
    """
    if not any((data_dir / name).exists() for name in DATA):
        raise click.ClickException(
            f"there is no broker's data in {data_dir}: name the data directory with --data-dir"
        )
    if mend:
        refuse_one_of_several(data_dir, "empty it, and the broker makes it equal to the others when it starts")
    try:
        held = open_data_directory(data_dir)
    except StartupError as error:
        raise SettingsError(error.sentence) from None
    progress = Progress()
    with held, shown(as_json) as show, watched(progress, show):
        if mend:
            done = _repaired(data_dir, progress)
        else:
            found = check_all(data_dir, progress, quick=quick).report
    if mend:
        print_repair(done, data_dir, as_json=as_json)
        context.exit(EXIT_DAMAGE if done.in_the_way else 0)
    print_report(found, data_dir, as_json=as_json)
    context.exit(EXIT_DAMAGE if found.count(DAMAGE) else EXIT_NEWER if found.count(NEWER) else 0)


def _repaired(data_dir: Path, progress: Progress) -> Repaired:
    try:
        return repair(data_dir, progress)
    except RepairError as error:
        raise click.ClickException(str(error)) from None


def print_repair(done: Repaired, data_dir: Path, *, as_json: bool) -> None:
    if as_json:
        click.echo(readable_json(done.plain(), 2))
        return
    if done.kept is None:
        click.echo(f"{escaped(str(data_dir))}: there is nothing that a repair can mend")
    else:
        print_report(done.before, data_dir, as_json=False)
        click.echo(escaped(f"repaired; the files as they were are in {done.kept}"))
        for each in done.consequences:
            click.echo(escaped(f"{each.severity}: {each.text}"))
    print_report(done.after, data_dir, as_json=False)
    if done.in_the_way:
        click.echo(escaped(f"the broker cannot start: {done.in_the_way[0].line}"))
    else:
        click.echo("the broker can start")


def print_report(found: Report, data_dir: Path, *, as_json: bool) -> None:
    if as_json:
        click.echo(readable_json(found.plain(), 2))
        return
    for each in found.findings:
        click.echo(escaped(f"{each.severity}{' format' * (each.severity == NEWER)}: {each.line}"))
    damages, notes, newer = found.count(DAMAGE), found.count(NOTE), found.count(NEWER)
    summary = f"{damages} {'damage' if damages == 1 else 'damages'}" if damages else "no damage"
    if newer:
        summary += f" in what this amqpd knows, {newer} {'file' if newer == 1 else 'files'} of a newer one"
    if notes:
        summary += f", {notes} {'note' if notes == 1 else 'notes'}"
    click.echo(escaped(f"{data_dir}: {summary}"))
