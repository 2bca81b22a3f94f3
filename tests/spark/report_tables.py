"""Tables as the other jobs write them, for the report's tests: a week of a small shop, with some of everything."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

BEGIN = datetime(2026, 11, 16, tzinfo=UTC)
HOURS = 7 * 24
QUEUES = {"orders": 9000, "payments": 4100, "mail": 2600, "stock": 700, "failed": 40}
MEASURES = {"publish_to_confirm": 2.1, "publish_to_deliver": 6.5, "deliver_to_ack": 31.0}
FATES = ("acked", "expired", "dropped", "rejected", "dead_lettered", "purged", "moved", "released")
DOUBTS = ("transient", "unconfirmed", "standing", "uncertain", "missing")


def write(folder: Path, name: str, rows: list[dict[str, Any]], by: str | None = None) -> None:
    """A table of one file; `by` is the column it is partitioned by."""
    if by is None:
        (folder / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / name / "part-0.parquet")
    elif rows:
        pq.write_to_dataset(pa.Table.from_pylist(rows), folder / name, partition_cols=[by])
    else:
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "_SUCCESS").touch()


def wave(hour: int) -> float:
    """Busy by day, quiet by night, less on Sundays."""
    weekday = 0.5 if (BEGIN + timedelta(hours=hour)).weekday() == 6 else 1.0
    return weekday * (0.15 + 0.85 * max(0.0, math.sin((hour % 24 - 6) / 24 * 2 * math.pi)))


def books(missing: int = 0, uncertain: int = 0) -> list[dict[str, Any]]:
    rows = []
    for hour in range(HOURS):
        for queue, usual in QUEUES.items():
            row: dict[str, Any] = {"window": BEGIN + timedelta(hours=hour), "vhost": "/", "queue": queue}
            row |= {"accepted": int(usual * wave(hour)), **dict.fromkeys((*FATES, *DOUBTS), 0)}
            row["expired"] = row["accepted"] // 50 if queue == "mail" else 0
            row["dead_lettered"] = row["accepted"] // 80 if queue in ("orders", "payments") else 0
            row["standing"] = row["accepted"] // 3 if hour == HOURS - 1 else 0
            if queue == "orders":
                row |= {"missing": missing if hour == 30 else 0, "uncertain": uncertain if hour == 31 else 0}
            row["acked"] = row["accepted"] - sum(row[name] for name in (*FATES[1:], *DOUBTS))
            row["date"] = row["window"].date().isoformat()
            rows.append(row)
    return rows


def conservation(folder: Path, missing: int = 0, uncertain: int = 0) -> None:
    made = books(missing, uncertain)
    write(folder, "conservation/books", made, "date")
    flow = [
        {name: row[name] for name in ("window", "vhost", "queue", "date")}
        | {"entered": row["accepted"], "ended": row["accepted"] - sum(row[name] for name in DOUBTS)}
        for row in made
    ]
    write(folder, "conservation/flow", flow, "date")
    where = {"vhost": "/", "queue": "orders", "queue_id": 7, "epoch": 3, "publication": 99_000}
    findings = [
        {
            "kind": "missing",
            **where,
            "first": 4711 + at,
            "count": 1,
            "message_id": f"order-{at}",
            "entered": BEGIN,
            "detail": "no end",
        }
        for at in range(missing)
    ]
    write(folder, "conservation/findings", findings, "kind")


def slo(folder: Path) -> None:
    route = {"vhost": "/", "exchange": "shop"}
    figures = {"p50_ms": 1.0, "p90_ms": 2.2, "p95_ms": 3.0, "p99_ms": 6.5, "p999_ms": 14.0, "max_ms": 80.0}
    latency = [
        {
            **route,
            "queue": queue,
            "minute": BEGIN + timedelta(hours=hour, minutes=minute),
            "measure": measure,
            "count": 100,
            "mean_ms": usual * 1.2,
            **{name: usual * factor * (1 + wave(hour) + (hour % 7) / 20) for name, factor in figures.items()},
        }
        for hour in range(HOURS)
        for minute in (0, 30)
        for measure, usual in MEASURES.items()
        for queue in ("orders", "mail")
    ]
    total = [
        {**{name: value for name, value in row.items() if name != "minute"}, "count": 123_456}
        for row in latency[: len(MEASURES) * 2]
    ]
    write(folder, "slo/latency", latency)
    write(folder, "slo/latency_total", total)
    names = {
        "confirms within 10 ms": (0.999, 0.9997),
        "delivered within 100 ms": (0.99, 0.984),
        "errors": (0.9999, 1.0),
    }
    objectives = [
        {
            "name": name,
            "measure": measure,
            "target": target,
            "good": int(share * 1e6),
            "total": 1_000_000,
            "share": share,
            "budget_left": 1 - (1 - share) / (1 - target),
            "met": share >= target,
        }
        for (name, (target, share)), measure in zip(names.items(), [*[*MEASURES][:2], "errors"], strict=True)
    ]
    burn = [
        {"name": name, "minute": BEGIN + timedelta(hours=hour), "burn_1h": rate, "burn_6h": rate / 2}
        for at, name in enumerate(names)
        for hour in range(HOURS)
        for rate in [18.0 if at == 1 and hour in (81, 82) else 0.3 * at * wave(hour)]
    ]
    breach = {"name": "delivered within 100 ms", "kind": "fast", "burn": 18.0}
    since = BEGIN + timedelta(hours=81)
    write(folder, "slo/objectives", objectives)
    write(folder, "slo/burn", burn)
    write(folder, "slo/breaches", [breach | {"since": since, "until": since + timedelta(hours=2)}])


def usage(folder: Path) -> None:
    def days() -> list[date]:
        return [BEGIN.date() + timedelta(days=day) for day in range(7)]

    users = {"shop": 80_000, "warehouse": 31_000, "newsletter": 24_000, "reporting": 900}
    write(
        folder,
        "usage/usage_by_user",
        [
            {"date": day, "vhost": "/", "user": user, "source": "events", "published": n, "published_bytes": n * 900}
            for day in days()
            for user, n in users.items()
        ],
    )
    by_queue = {"date": BEGIN.date(), "vhost": "/", "source": "events"}
    queues = [{**by_queue, "queue": name, "accepted": n * 60, "delivered": n * 61} for name, n in QUEUES.items()]
    write(folder, "usage/usage_by_queue", queues)
    exchange = {"date": BEGIN.date(), "vhost": "/", "publications": 1_000_000}
    spread = [
        exchange | {"exchange": name, "copies": copies} for name, copies in (("shop", 2_400_000), ("", 1_000_000))
    ]
    write(folder, "usage/fanout", spread)
    idle = {"vhost": "/", "queue": "import-2024", "last_used": None, "standing": 1200, "idle_days": 41.0}
    write(folder, "usage/idle_queues", [idle])
    old = {"vhost": "/", "queue": "failed", "standing": 311, "oldest_age_s": 412_000.0}
    write(folder, "usage/queue_age", [old])


def security(folder: Path) -> None:
    who = {"address": "203.0.113.9", "vhost": None, "object": None}
    finding = {"kind": "guessing", "severity": "high", "time": BEGIN, "user": "admin", "count": 412, **who}
    other = {"kind": "new_address", "severity": "low", "time": BEGIN, "user": "shop", "count": 1, **who}
    tried = "203.0.113.9 tried 412 passwords for admin in 5 minutes, and none was right"
    new = "shop came from 203.0.113.9 for the first time"
    write(folder, "security/findings", [finding | {"sentence": tried}, other | {"sentence": new}])
    last = BEGIN + timedelta(minutes=5)
    login = {"address": "203.0.113.9", "user": "admin", "count": 412, "first": BEGIN, "last": last}
    write(folder, "security/failed_logins", [login])


def everything(folder: Path, missing: int = 0, uncertain: int = 0) -> Path:
    conservation(folder, missing, uncertain)
    slo(folder)
    usage(folder)
    security(folder)
    return folder
