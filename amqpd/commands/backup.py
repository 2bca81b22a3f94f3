"""`amqpd backup` and `amqpd restore`.

What comes in: a folder, a data directory. What goes out: a backup of a broker, running or stopped; a data directory
that was restored; how far it is, on standard error.
Rules: 1. A running broker copies by itself; without one the data directory's lock is taken and the same is done here.
2. On a terminal the progress is one line that changes; elsewhere a line for each step, and one now and then. 3. What
does not end with "complete" on standard output, and exit code 0, is no backup.
Not here: the work (`amqpd/backup/`).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from amqpd.backup.job import LOG_BYTES_MAX, Job
from amqpd.backup.manifest import MANIFEST, BackupError, Manifest
from amqpd.backup.progress import Progress
from amqpd.backup.restore import refuse_unfinished
from amqpd.backup.restore import restore as put_back
from amqpd.commands.options import data_dir_option, refuse_one_of_several, this_data_dir_option
from amqpd.commands.running import ANSWER_TIMEOUT_S
from amqpd.datadir.lock import open_data_directory
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.management.control import socket as control
from amqpd.vocabulary.escapes import escaped, readable_json

MEGABYTE = 1_000_000
LINE_EVERY_S = 10.0
"""Where the progress is no line that changes."""
LOOK_S = 0.2

rate_option = click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="MB/S",
    help="Copy at most this number of megabytes a second.  [default: as fast as the disks]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON, and no progress.")


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@rate_option
@click.option(
    "--log-max",
    type=click.IntRange(1),
    default=LOG_BYTES_MAX // MEGABYTE,
    show_default=True,
    metavar="MB",
    help="Give up when the journal's write-ahead log, which grows by what is published meanwhile, is larger.",
)
@json_option
@data_dir_option
def backup(target: Path, rate: float | None, log_max: int, as_json: bool, data_dir: Path) -> None:
    """Copy all messages and definitions to TARGET, a new folder, while the broker goes on.

    Everything that was confirmed before the command began is in it. Without a running broker its data directory
    is copied just so. The audit log is not part of it: it is a folder of files that can be copied as they are.

    A running broker writes TARGET itself, as its own user. TARGET is complete when the command says so: then it
    has a file backup.json with the checksums that amqpd restore compares.

    \b
    Examples:
      amqpd backup /var/backups/amqpd/2026-11-23
      amqpd backup /mnt/nfs/amqpd-monday --rate 50
      amqpd --data-dir ./data backup ./copy --json
    """
    target = target.absolute()
    with shown(as_json) as show:
        try:
            manifest = _of_running(data_dir, target, rate, log_max, show) or _of_stopped(data_dir, target, rate, show)
        except control.BrokerLost as error:
            raise click.ClickException(f"{error}: {target} is a backup only if it has a backup.json") from None
        except BackupError as error:
            raise click.ClickException(str(error)) from None
    _tell(manifest, as_json, f"backup complete: {target}")


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Move what is in the data directory to a folder in it, first.")
@rate_option
@json_option
@this_data_dir_option
def restore(source: Path, replace: bool, rate: float | None, as_json: bool, data_dir: Path) -> None:
    """Put the backup SOURCE into the data directory of a broker that does not run.

    The backup is compared with its checksums, and checked, before anything is moved. The directory has to be
    without data; with --replace, its data is moved to a folder replaced-... in it, and never deleted.

    The audit log begins a new book. A broker that is restored delivers again what was consumed after the backup.

    \b
    Examples:
      amqpd restore /var/backups/amqpd/2026-11-23
      amqpd restore /var/backups/amqpd/2026-11-23 --replace
      amqpd restore ./copy --data-dir ./elsewhere
    """
    refuse_one_of_several(
        data_dir, "restore into an empty one, and start the broker with that and empty ones beside it"
    )
    progress = Progress(None if rate is None else rate * MEGABYTE)
    with shown(as_json) as show, watched(progress, show):
        try:
            manifest, aside = put_back(source, data_dir, progress, replace=replace)
        except BackupError as error:
            raise click.ClickException(str(error)) from None
    if aside is not None and not as_json:
        click.echo(f"what was there before is in {escaped(str(aside))}")
    if not manifest.has_checksum and not as_json:
        click.echo(
            f"{escaped(str(source / MANIFEST))} has no checksum of its own, as those of earlier versions: what it "
            "says of the backup's time and version is not proven; the files fit their checksums"
        )
    _tell(manifest, as_json, f"restored: {data_dir}")


def _of_running(
    data_dir: Path, target: Path, rate: float | None, log_max: int, show: Callable[[dict[str, Any]], None]
) -> dict[str, Any] | None:
    """The manifest; None when no broker runs. Raises ManagementError."""
    request = {"target": str(target), "log_bytes_max": log_max * MEGABYTE}
    if rate is not None:
        request["rate_bytes_s"] = rate * MEGABYTE
    found: dict[str, Any] | None = None
    for row in control.each_row(data_dir, "backup", request, ANSWER_TIMEOUT_S) or ():
        if "backup" in row:
            found = row["backup"]
        else:
            show(row)
    return found


def _of_stopped(
    data_dir: Path, target: Path, rate: float | None, show: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Raises BackupError; StartupError when a broker holds the directory all the same."""
    for name in (JOURNAL, "metadata.db"):
        if not (data_dir / name).exists():
            raise BackupError(
                f"no broker runs on {data_dir}, and it has no {name}: "
                "name the broker's data directory with --data-dir"
            )
    progress = Progress(None if rate is None else rate * MEGABYTE)
    with open_data_directory(data_dir), watched(progress, show):
        refuse_unfinished(data_dir)
        manifest: Manifest = Job(data_dir, target, progress, running=False).run()
    return asdict(manifest)


def _tell(manifest: Manifest | dict[str, Any], as_json: bool, sentence: str) -> None:
    found = asdict(manifest) if isinstance(manifest, Manifest) else manifest
    if as_json:
        click.echo(readable_json(found, 2))
        return
    nbytes = sum(each["nbytes"] for each in found["files"].values())
    click.echo(
        f"{escaped(sentence)}, {nbytes / MEGABYTE:,.1f} MB, as of {found['began']}, "
        f"journal {found['journal'].get('index')}, metadata {found['metadata'].get('revision')}"
    )


@contextmanager
def shown(quiet: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Shows rows of progress on standard error, in the way that fits it."""
    changing = sys.stderr.isatty()
    told_at, told = 0.0, ""

    def show(row: dict[str, Any]) -> None:
        nonlocal told_at, told
        now = time.monotonic()
        if quiet or not (changing or row["phase"] != told or now - told_at >= LINE_EVERY_S):
            return
        told_at, told = now, row["phase"]
        click.echo(f"\r\x1b[K{_line(row)}" if changing else _line(row), err=True, nl=not changing)

    try:
        yield show
    finally:
        if changing and told:
            click.echo("\r\x1b[K", err=True, nl=False)


def _line(row: dict[str, Any]) -> str:
    text = str(row["phase"])
    if row["total"]:
        text += f"  {row['done'] / MEGABYTE:,.0f} of {row['total'] / MEGABYTE:,.0f} MB"
        text += f" ({100 * row['done'] // row['total']} %)"
    if row["held_log"]:
        text += f", the journal's log has grown by {row['held_log'] / MEGABYTE:,.0f} MB"
    return escaped(text)


@contextmanager
def watched(progress: Progress, show: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Shows the progress of work that is done in this thread."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK_S):
            show(progress.row)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
