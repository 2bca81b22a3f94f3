"""`amqpd top`: a running broker, live: what needs attention, totals, and the queues in which most happens.

What comes in: what the broker says, again and again. What goes out: a screen, drawn again each time; or one look.
Rules: 1. Nothing is changed. 2. Looking takes no more than a tenth of the time: a broker with very many queues is
asked less often. 3. Names that clients chose do nothing to the terminal.
Not here: what the figures mean (`amqpd/management/`), the screen itself (Rich).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from amqpd.commands.options import broker_option
from amqpd.commands.running import ask, ask_rows
from amqpd.commands.status import need_sentence
from amqpd.management.control.socket import Place
from amqpd.vocabulary.escapes import escaped

Row = dict[str, Any]

SORTS = ("messages", "in", "out", "oldest", "name")
LOOKS_SHARE = 10
"""of the time, one part of this number is spent on asking"""
LINES_BESIDE = 6
"""of the screen, that no queue stands in"""
NEEDS_MAX = 5
"""lines at the top, of what needs attention"""
ONCE_LINES = 20
DASH, UNKNOWN = "-", "?"
TITLES = ("ready", "unacked", "in/s", "out/s", "acks/s", "oldest", "consumers")
"""of columns behind a queue's name"""
NARROW = 80
"""characters of a terminal, below which a queue has fewer columns, and most of them for its name"""
LEFT_OUT = ("unacked", "acks/s", "oldest")
"""there"""


@click.command()
@click.option("--vhost", help="Only queues of this virtual host.")
@click.option("--sort", type=click.Choice(SORTS), default="messages", show_default=True, help="Which queues first.")
@click.option(
    "--interval", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, help="Seconds between two looks."
)
@click.option("--once", is_flag=True, help="Print one look and end, for logs and scripts.")
@broker_option
def top(vhost: str | None, sort: str, interval: float, once: bool, broker: Place) -> None:
    """Watch a running broker: what needs attention, messages, rates, and its busiest queues. Ctrl-C ends it.

    in, out and acks are messages a second over the last seconds; oldest is how long the first message of a queue
    has waited.

    \b
    Examples:
      amqpd top
      amqpd top --sort oldest --vhost shop
      amqpd top --once
    """
    console = Console(highlight=False)
    if once:
        console.print(_look(broker, vhost, sort, ONCE_LINES, console.width))
        return
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            began = time.monotonic()
            lines = max(1, console.height - LINES_BESIDE)
            live.update(_look(broker, vhost, sort, lines, console.width), refresh=True)
            took = time.monotonic() - began
            time.sleep(max(interval - took, took * (LOOKS_SHARE - 1)))


def _look(broker: Place, vhost: str | None, sort: str, lines: int, width: int) -> RenderableType:
    sums = ask(broker, "status", {})
    return screen(sums, ask_rows(broker, "queue list", {"vhost": vhost}, ("vhost", "name")), sort, lines, width)


def screen(sums: Row, rows: Sequence[Row], sort: str, lines: int, width: int) -> RenderableType:
    """`sums` of the command `status`, `rows` of `queue list`, sorted by name. `width` in characters."""
    shown = rows if sort == "name" else sorted(rows, key=lambda row: -_weight(row, sort))
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("vhost", overflow="ellipsis", no_wrap=True, ratio=1)
    table.add_column("queue", overflow="ellipsis", no_wrap=True, ratio=3)
    titles = TITLES if width >= NARROW else [title for title in TITLES if title not in LEFT_OUT]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    lines = max(1, lines - min(len(sums["needs_attention"]), NEEDS_MAX))
    for row in shown[:lines]:
        names, figures = _cells(row)
        table.add_row(*names, *(figures[TITLES.index(title)] for title in titles))
    more = len(rows) - lines
    tail = [Text(f"and {more:,} more queues", style="dim")] if more > 0 else []
    return Group(*_head(sums, rows), Text(), table, *tail)


def _head(sums: Row, rows: Sequence[Row]) -> list[Text]:
    counts = ("connections", "channels", "queues", "messages_ready", "messages_unacknowledged")
    said = "   ".join(f"{name.removeprefix('messages_')} {sums[name]:,}" for name in counts)
    flow = "   ".join(f"{title} {sum(_rate(row, name) for row in rows):,.0f}/s" for title, name in RATES)
    head = Text(escaped(sums["node"]), style="bold")
    needs = sums["needs_attention"]
    if not needs:
        head.append("   nothing needs attention", style="green")
    elif len(needs) > NEEDS_MAX:
        head.append(f"   {len(needs)} things need attention: amqpd status", style="yellow")
    return [head, *map(_need, needs[:NEEDS_MAX]), Text(said), Text(flow)]


def _need(need: Row) -> Text:
    style = "bold red" if need["severity"] == "bad" else "yellow"
    return Text(need_sentence(need), style=style, no_wrap=True, overflow="ellipsis")


RATES = (("in", "publish"), ("out", "deliver_get"), ("acks", "ack"))


def _cells(row: Row) -> tuple[list[Text], list[Text]]:
    """Its virtual host and its name; its figures in the order of the titles."""
    style = "red" if row["state"] in ("crashed", "fenced", "down", "minority") else ""
    if row["messages"] is None:
        cells = [UNKNOWN] * len(TITLES)
    else:
        numbers = [f"{row['messages_ready']:,}", f"{row['messages_unacknowledged']:,}"]
        rates = [_figure(_rate(row, name)) for _, name in RATES]
        age_s = row["oldest_message_age_s"]
        cells = [*numbers, *rates, DASH if age_s is None else _age(age_s), f"{row['consumers']:,}"]
    return [Text(escaped(row["vhost"])), Text(escaped(row["name"]), style=style)], list(map(Text, cells))


def _weight(row: Row, sort: str) -> float:
    if sort == "oldest":
        return float(row["oldest_message_age_s"] or 0)
    name = dict(RATES).get(sort)
    return float(row["messages"] or 0) if name is None else _rate(row, name)


def _rate(row: Row, name: str) -> float:
    return 0.0 if row["message_stats"] is None else float(row["message_stats"][f"{name}_details"]["rate"])


def _figure(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
