"""`amqpd audit`: how the audit log stands, what it says, and making it whole now.

What comes in: the data directory; filters. What goes out: the state of a running broker's log; rows of the log's
files.
Rules: what is in the spool is not in the files yet: `flush` asks the broker for that, and `show` says that it was not
asked.
Not here: the log (`amqpd/audit/`), jobs on it (`amqpd-spark`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from amqpd.commands.options import broker_option, data_dir_option, json_option
from amqpd.commands.running import ask
from amqpd.commands.tables import show
from amqpd.management.control.socket import Place
from amqpd.vocabulary.escapes import escaped

# Columns of `show`, beside the time; those that are empty in all rows are left out.
COLUMNS = (
    "event",
    "vhost",
    "queue",
    "exchange",
    "routing_key",
    "first",
    "count",
    "user",
    "address",
    "object",
    "reason",
)
LAST_MAX = 10_000


@click.group()
def audit() -> None:
    """See what the broker wrote down: acts of people and programs, figures, each message's events.

    What is recorded is a setting (audit.level, or AMQPD_AUDIT_LEVEL), and for queues the policy key
    "audit". docs/audit.md describes the files; amqpd-spark has jobs for them: conservation, slo,
    security, usage, trace.

    \b
    Examples:
      amqpd policy set orders-audit '^orders' '{"audit": "full"}' --apply-to queues
      amqpd audit status
      amqpd audit flush && amqpd audit show --event login_failed
    """


@audit.command()
@json_option
@broker_option
def status(as_json: bool, broker: Place) -> None:
    """Level, size of the spool, files written since the start, whether there is a gap at the moment.

    \b
    Example:
      amqpd audit status --json
    """
    state = ask(broker, "audit status", {})
    if as_json:
        click.echo(json.dumps(state))
        return
    width = max(map(len, state))
    for name, value in state.items():
        click.echo(f"{name.ljust(width)}  {'-' if value is None else escaped(str(value))}")


@audit.command()
@data_dir_option
def flush(data_dir: Path) -> None:
    """Make files of everything that happened until now, and say where they are.

    \b
    Example:
      amqpd audit flush && amqpd-spark conservation --input /var/lib/amqpd/audit/events --output books
    """
    answer = ask(data_dir, "audit flush", {})
    if answer["waiting"]:
        raise click.ClickException(f"{answer['waiting']} parts wait for space on the disk of {answer['folder']}")
    click.echo(answer["folder"])


@audit.command("show")
@click.option("--event", "events", multiple=True, help="Only this event; repeat it for several.")
@click.option("--queue", help="Only of this queue.")
@click.option("--vhost", help="Only in this virtual host.")
@click.option("--user", help="Only by this user.")
@click.option(
    "--last", type=click.IntRange(1, LAST_MAX), default=50, show_default=True, help="At most this number of rows."
)
@json_option
@data_dir_option
def show_rows(
    events: tuple[str, ...],
    queue: str | None,
    vhost: str | None,
    user: str | None,
    last: int,
    as_json: bool,
    data_dir: Path,
) -> None:
    """The last rows of the log's files, oldest first. No broker has to run.

    \b
    Example, who failed to log in:
      amqpd audit show --event login_failed --last 20
    """
    filters = {"queue": queue, "vhost": vhost, "user": user}
    rows = _rows(data_dir / "audit" / "events", events, {k: v for k, v in filters.items() if v is not None}, last)
    if as_json:
        show(rows, ("time", *COLUMNS), as_json)
        return
    used = [name for name in COLUMNS if any(row[name] not in (None, "", 0) for row in rows)]
    show([{name: "" if row[name] is None else row[name] for name in row} for row in rows], ("time", *used), as_json)


def _rows(folder: Path, events: tuple[str, ...], filters: dict[str, str], last: int) -> list[dict[str, Any]]:
    """From the newest file backwards, so that a long log is not read whole."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("date=*/hour=*/*-*-*.parquet"), key=_age, reverse=True):
        try:
            table = pq.ParquetFile(path, page_checksum_verification=True).read()
        except (OSError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            click.echo(f"amqpd: {escaped(str(path))} is damaged, its rows are left out: {escaped(reason)}", err=True)
            continue
        for name, value in filters.items():
            table = table.filter(pc.equal(table[name], value))
        if events:
            table = table.filter(pc.is_in(table["event"], pa.array(events)))
        rows = table.slice(max(0, table.num_rows - (last - len(found)))).to_pylist()
        found = [{**row, "time": row["time"].isoformat(timespec="microseconds")} for row in rows] + found
        if len(found) >= last:
            break
    return found


def _age(path: Path) -> tuple[str, str, int, int]:
    _, incarnation, number = path.stem.rsplit("-", 2)
    # Somebody else's file may have another name.
    numbers = (int(incarnation), int(number)) if incarnation.isdecimal() and number.isdecimal() else (0, 0)
    return path.parent.parent.name, path.parent.name, *numbers
