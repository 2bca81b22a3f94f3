"""What `amqpd queue show` prints: a queue's facts as lines for a person.

What comes in: a row of `queue list`, rows of its consumers. What goes out: text.
Rules: what is nothing is not printed, so that what is there is seen.
Not here: where the facts come from (`amqpd/management/figures/queue_facts.py`), --json.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from amqpd.commands.tables import table
from amqpd.vocabulary.escapes import escaped, readable_json

Row = Mapping[str, Any]
# The longest bar of the histogram.
BAR_CHARACTERS = 40
CONSUMER_COLUMNS = (
    "consumer_tag",
    "connection_id",
    "channel",
    "user",
    "ack_required",
    "prefetch_count",
    "messages_unacknowledged",
    "priority",
    "active",
)


def picture(row: Row, consumers: list[dict[str, Any]]) -> str:
    """Without figures, what it is and who should know."""
    what = [*_what_it_is(row), *(_figures(row) if row["messages"] is not None else _silence(row))]
    width = max(len(name) for name, _ in what)
    text = [f"{name:{width}}  {escaped(value)}" for name, value in what if value]
    bars = histogram(row["time_in_queue_ms"] or {})
    if bars:
        text += ["", "time in queue, until the delivery:", *(f"  {bar}" for bar in bars)]
    if consumers:
        text += ["", *table(consumers, CONSUMER_COLUMNS)]
    return "\n".join(text)


def _what_it_is(row: Row) -> list[tuple[str, str | None]]:
    flags = [name for name in ("durable", "auto_delete", "exclusive") if row[name]]
    members = ", ".join(row.get("members", ()))
    return [
        ("queue", f"{row['name']} in {row['vhost']} ({', '.join([row['type'], *flags])})"),
        ("led by", f"{row.get('leader') or 'nobody'}, kept by {members}" if members else row.get("leader")),
        ("damaged", _damage(row["fenced"])),
        ("policy", row["policy"]),
        ("operator policy", row["operator_policy"]),
        ("arguments", _members(row["arguments"])),
        ("settings", _members({name: value for name, value in row["settings"].items() if name != "type"})),
    ]


def _silence(row: Row) -> list[tuple[str, str | None]]:
    return [
        ("state", f"{row['state']}: what is in it only its leader knows, and that does not answer"),
        ("see", "amqpd cluster status says which nodes are there, amqpd queue list again in a moment"),
    ]


def _figures(row: Row) -> list[tuple[str, str | None]]:
    stats = row["message_stats"]
    rates = ", ".join(
        f"{name} {stats[member + '_details']['rate']:,}"
        for name, member in (("in", "publish"), ("out", "deliver_get"), ("acks", "ack"), ("again", "redeliver"))
    )
    oldest = row["oldest_message_age_s"]
    return [
        ("messages", f"{row['messages_ready']:,} ready, {row['messages_unacknowledged']:,} unacknowledged"),
        ("bytes", f"{row['message_bytes']:,} of bodies; {row['memory']:,} in memory"),
        ("oldest ready", None if oldest is None else f"{oldest:,.1f} s"),
        ("a second", rates),
        ("totals", counted(row["totals"])),
        ("consumers", f"{row['consumers']:,}, capacity {row['consumer_capacity']:.0%}"),
        ("single active", row["single_active_consumer_tag"]),
    ]


def histogram(counts: Mapping[str, int]) -> list[str]:
    """A bar for each bucket from the first to the last that has something; none at all when there is nothing."""
    buckets = list(counts.items())
    used = [at for at, (_, count) in enumerate(buckets) if count]
    if not used:
        return []
    buckets = buckets[used[0] : used[-1] + 1]
    most, total = max(counts.values()), sum(counts.values())
    names = [f"up to {_time(int(bound))}" if bound.isdigit() else "longer" for bound, _ in buckets]
    width, digits = max(map(len, names)), len(f"{most:,}")
    lines = []
    for name, (_, count) in zip(names, buckets, strict=True):
        bar = "#" * -(-count * BAR_CHARACTERS // most)
        lines.append(f"{name:{width}}  {count:>{digits},}  {count / total:>4.0%}  {bar}".rstrip())
    return lines


def counted(counts: Mapping[str, int]) -> str:
    """As in "dropped 3, returned 1"; what is nothing is left out."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)


def _damage(damage: Mapping[str, Any] | None) -> str | None:
    if damage is None:
        return None
    where = "nothing is delivered" if damage["blocked"] else "what stands before is delivered"
    return f"messages {damage['first']} to {damage['last']} ({damage['reason']}); {where}"


def _members(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_said(value)}" for name, value in values.items())


def _said(value: Any) -> str:
    return value if isinstance(value, str) else readable_json(value)


def _time(milliseconds: int) -> str:
    for unit, size in _UNITS:
        if milliseconds >= size:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"


_UNITS: Iterable[tuple[str, int]] = (("h", 3_600_000), ("min", 60_000), ("s", 1000))
