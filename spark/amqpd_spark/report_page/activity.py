"""Sections on what the broker was like to use: latencies, objectives, who used it, who should not have.

What comes in: `Tables`. What goes out: `Section`s.
Rules: as in `sections.py`.
Not here: whether messages are missing (`sections.py`).
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqpd_spark.findings import BROKER
from amqpd_spark.report_page import words
from amqpd_spark.report_page.charts import SERIES_MAX, Chart, Series, bars, lines
from amqpd_spark.report_page.names import Names
from amqpd_spark.report_page.parts import (
    BAD,
    GOOD,
    UNKNOWN,
    UNSURE,
    Cell,
    Column,
    Section,
    count,
    listing,
    text,
    told,
    when,
)
from amqpd_spark.report_page.tables import POINTS_MAX, ROWS_FEW, STEPS_S, Rows, Tables, coarse, rows, sums

_SEVERITIES = {"critical": BAD, "high": BAD, "medium": UNSURE, "warning": UNSURE, "low": "", "info": ""}
# At this rate the budget of a month is spent in two days, and somebody is woken.
BURN_ALERT = 14.4
OBJECTIVES_MAX = 1_000
"""that are shown; a person wrote them, one by one"""


def latency(tables: Tables) -> Section:
    section = Section("latency", "How long did messages take?", command="slo")
    wanted = ("measure", "count", "p50_ms", "p99_ms")
    each_minute = tables.table("slo/latency", "minute", *wanted)
    total = tables.table("slo/latency_total", "vhost", "exchange", "queue", *wanted, "max_ms")
    if each_minute is not None and (chart := _over_time(each_minute)) is not None:
        section.parts.append(chart)
    if total is not None:
        routes = total.where("scope = 'route'") if "scope" in total.columns else total
        found = rows(routes, [F.desc("p99_ms"), F.col("queue"), F.col("measure")])
        slowest = max((row["p99_ms"] or 0 for row in found), default=0) or 1
        columns: list[Column] = [
            ("Queue", Names(routes).of("queue", words.NOTHING), False),
            ("Exchange", text("exchange", "(default)"), False),
            ("From, to", lambda row: _measure(row["measure"]), False),
            ("Messages", told("count", words.number), True),
            ("Half within", told("p50_ms", words.milliseconds), True),
            (
                "99 % within",
                lambda row: Cell(words.milliseconds(row["p99_ms"]), "", (row["p99_ms"] or 0) / slowest),
                True,
            ),
            ("Longest", told("max_ms", words.milliseconds), True),
        ]
        section.parts.append(listing("The slowest ways", found, columns, routes))
    return section


def _measure(name: Any) -> str:
    return str(name).replace("_", " ")


def _over_time(latencies: DataFrame) -> Chart | None:
    """Percentiles of several queues are no percentile of all: the middle is a mean of medians, the top the worst."""
    cut, step, _ = coarse(latencies, "minute")
    weighted = F.sum(F.col("p50_ms") * F.col("count")) / F.sum("count")
    points = cut.groupBy("measure", "minute").agg(weighted.alias("middle"), F.max("p99_ms").alias("worst"))
    found = rows(points.where("middle > 0"), [F.col("measure"), F.col("minute")], SERIES_MAX * (POINTS_MAX + 2))
    series = []
    for colour, (measure, group) in enumerate(groupby(found, key=lambda row: row["measure"])):
        part = list(group)
        for name, figure, dashed in (("usual", "middle", False), ("worst 1 %", "worst", True)):
            values = [(row["minute"], float(row[figure])) for row in part]
            series.append(Series(f"{_measure(measure)}, {name}", values, colour % SERIES_MAX, dashed))
    if not series:
        return None
    says = f"Each {step}: the usual time (mean of the queues' medians), and the 99th percentile of the worst queue."
    return lines("Latency", says, series, words.milliseconds, log=True)


def objectives(tables: Tables) -> Section:
    section = Section("objectives", "Were the objectives met?", command="slo")
    status = tables.table("slo/objectives", "name|objective", "measure", "target", "share", "budget_left", "met")
    if status is None:
        section.verdict(UNKNOWN, "No objectives were measured")
        return section
    order = [F.col("met").asc_nulls_last(), F.col("budget_left").asc_nulls_last(), F.col("name")]
    found = rows(status, order, OBJECTIVES_MAX)
    missed = [row for row in found if row["met"] is False]
    if missed:
        names = ", ".join(str(row["name"]) for row in missed[:3]) + (" ..." if len(missed) > 3 else "")
        section.verdict(BAD, f"{len(missed)} of {len(found)} objectives missed: {names}")
    elif silent := sum(row["met"] is None for row in found):
        met = len(found) - silent
        sentence = f"{met} of {len(found)} objectives met; no messages for the other {silent}"
        section.verdict(GOOD if met else UNKNOWN, sentence if met else "No messages that the objectives are about")
    elif found:
        section.verdict(GOOD, f"All {len(found)} objectives met")
    columns: list[Column] = [
        ("Objective", text("name"), False),
        ("Met?", lambda row: _met(row["met"]), False),
        ("Of", lambda row: _measure(row["measure"]), False),
        ("Target", told("target", words.percent), True),
        ("Reached", told("share", words.percent), True),
        ("Error budget left", _budget, True),
    ]
    section.parts.append(listing("Objectives", found, columns))
    _burning(tables, section)
    return section


def _met(met: bool | None) -> Cell:
    return Cell("no messages") if met is None else Cell("met", GOOD) if met else Cell("missed", BAD)


def _budget(row: dict[str, Any]) -> Cell:
    left = row["budget_left"]
    if left is None:
        return Cell(words.NOTHING)
    tone = BAD if left <= 0 else UNSURE if left < 0.25 else GOOD
    written = words.percent(left) if left >= 0 else f"spent {1 - left:,.1f} times"
    return Cell(written, tone, min(max(float(left), 0), 1))


def _burning(tables: Tables, section: Section) -> None:
    burn = tables.table("slo/burn", "name|objective", "minute", "burn_1h")
    if burn is not None:
        cut, step, _ = coarse(burn, "minute")
        worst = cut.groupBy("name").agg(F.max("burn_1h").alias("burn_1h"))
        names = [row["name"] for row in rows(worst, [F.desc("burn_1h"), F.col("name")], SERIES_MAX)]
        points = (
            cut.where(F.col("name").isin(*names)).groupBy("name", "minute").agg(F.max("burn_1h").alias("burn_1h"))
        )
        found = rows(points.dropna(), [F.col("name"), F.col("minute")], SERIES_MAX * (POINTS_MAX + 2))
        series = [
            Series(str(name), [(row["minute"], float(row["burn_1h"])) for row in group], colour)
            for colour, (name, group) in enumerate(groupby(found, key=lambda row: row["name"]))
        ]
        # A budget that nothing was spent of is in the list above; a line at 0 says no more.
        if any(value for each in series for _, value in each.points):
            says = (
                f"How fast the error budget went in the hour before, each {step} its highest: at 1 it lasts exactly."
            )
            says += f" The line is at {BURN_ALERT}, where somebody should be woken."
            high = max(value for each in series for _, value in each.points)
            mark = BURN_ALERT if high > BURN_ALERT / 3 else None
            says = says if mark else says.partition(" The line")[0]
            section.parts.append(lines("Burn rate", says, series, words.short, mark=mark))
    breaches = tables.table("slo/breaches", "name|objective", "kind|alert", "since|from", "until", "burn|peak")
    found = [] if breaches is None else rows(breaches, [F.desc("burn"), F.col("since")])
    if found:
        columns: list[Column] = [
            ("Objective", text("name"), False),
            ("Kind", text("kind"), False),
            ("Since", when("since"), False),
            ("Until", when("until"), False),
            ("Burn rate", told("burn", words.ratio, BAD), True),
        ]
        section.parts.append(listing("Budgets that burnt too fast", found, columns, breaches))


def usage(tables: Tables) -> Section:
    section = Section("usage", "Who used the broker?", command="usage")
    users = tables.table("usage/usage_by_user", "date", "vhost", "user", "published", "published_bytes")
    if users is not None:
        users = users.withColumn("user", F.coalesce("user", F.lit(BROKER)))
        if (chart := _by_day(users)) is not None:
            section.parts.append(chart)
        other = "Bytes", "published_bytes", words.octets
        section.parts.append(_talkers("Top talkers", users, "user", "published", other))
    queues = tables.table("usage/usage_by_queue", "vhost", "queue", "accepted", "delivered")
    if queues is not None:
        other = "Delivered", "delivered", words.number
        section.parts.append(_talkers("Busiest queues", queues, "queue", "accepted", other))
    _queues_to_look_at(tables, section)
    return section


def _talkers(caption: str, table: DataFrame, who: str, figure: str, other: tuple[str, str, Any]) -> Any:
    names = Names(table)
    heading, column, write = other
    top = sums(table, [*names.keys, who], [figure, column])
    found = rows(top, [F.desc(figure), *map(F.col, names.keys), F.col(who)], ROWS_FEW)
    most = max((row[figure] or 0 for row in found), default=0) or 1
    columns: list[Column] = [
        (who.capitalize(), names.of(who), False),
        (figure.capitalize(), count(figure, most), True),
        (heading, told(column, write), True),
    ]
    return listing(caption, found, columns, top)


def _by_day(users: DataFrame) -> Chart | None:
    days, step, step_s = coarse(users, "date", STEPS_S["day"])
    top = sums(days, ["user"], ["published"])
    names = [row["user"] for row in rows(top, [F.desc("published"), F.col("user")], SERIES_MAX - 1)]
    who = F.when(F.col("user").isin(*names), F.col("user")).otherwise(F.lit("others"))
    found = rows(sums(days.withColumn("user", who), ["date", "user"], ["published"]), [F.col("date")], 5000)
    dates = sorted({row["date"] for row in found})
    if len(dates) < 2:
        return None
    by = {(row["date"], row["user"]): float(row["published"] or 0) for row in found}
    order = [*names, *(["others"] if any(user == "others" for _, user in by) else [])]
    series = [Series(name, [(at, by.get((at, name), 0)) for at in dates], at) for at, name in enumerate(order)]
    return bars("Published", f"Messages each {step}, by user.", series, words.number, step_s)


def _queues_to_look_at(tables: Tables, section: Section) -> None:
    ages = tables.table("usage/queue_age", "vhost", "queue", "standing", "oldest_age_s")
    left = None if ages is None else ages.where("standing > 0")
    old: Rows = [] if left is None else rows(left, [F.desc("oldest_age_s"), F.col("queue")], ROWS_FEW)
    if old and ages is not None:
        columns: list[Column] = [("Queue", Names(ages).of("queue"), False)]
        columns.append(("Messages there", told("standing", words.number), True))
        columns.append(("Oldest", told("oldest_age_s", words.seconds), True))
        section.parts.append(listing("Oldest messages", old, columns, left))
    idle = tables.table("usage/idle_queues", "vhost", "queue", "last_used", "standing", "idle_days")
    unused = [] if idle is None else rows(idle, [F.desc("idle_days"), F.col("queue")])
    if unused and idle is not None:
        columns = [("Queue", Names(idle).of("queue"), False), ("Last used", when("last_used"), False)]
        columns += [
            ("Messages there", told("standing", words.number), True),
            ("Idle days", told("idle_days", words.number), True),
        ]
        section.parts.append(listing("Idle queues", unused, columns, idle))
    fanout = tables.table("usage/fanout", "vhost", "exchange", "publications", "copies")
    if fanout is not None:
        names = Names(fanout)
        spread = sums(fanout, [*names.keys, "exchange"], ["publications", "copies"]).where("publications > 0")
        spread = spread.withColumn("each", F.col("copies") / F.col("publications"))
        found = rows(spread, [F.desc("copies"), F.col("exchange")], ROWS_FEW)
        columns = [
            ("Exchange", names.of("exchange", "(default)"), False),
            ("Publications", told("publications", words.number), True),
            ("Copies in queues", told("copies", words.number), True),
            ("Copies of each", told("each", words.ratio), True),
        ]
        section.parts.append(listing("Fan-out", found, columns, spread))


def security(tables: Tables) -> Section:
    section = Section("security", "Did anybody try what they should not?", command="security")
    findings = tables.table("security/findings", "kind", "severity", "time", "sentence")
    if findings is None:
        section.verdict(UNKNOWN, "Acts were not looked at")
    else:
        counts = {row["severity"]: row["count"] for row in findings.groupBy("severity").count().collect()}
        grave = sum(count for severity, count in counts.items() if _SEVERITIES.get(severity, BAD) == BAD)
        total = sum(counts.values())
        if grave:
            section.verdict(BAD, f"{grave:,} grave security {'finding' if grave == 1 else 'findings'}")
        elif total:
            section.verdict(
                UNSURE, f"{total:,} security {'finding' if total == 1 else 'findings'}, none of them grave"
            )
        else:
            section.verdict(GOOD, "No security findings")
        section.parts += _grave_first(findings) if total else []
    logins = tables.table("security/failed_logins", "address", "user", "count", "first", "last")
    found = [] if logins is None else rows(logins, [F.desc("count"), F.col("address"), F.col("user")], ROWS_FEW)
    if found and logins is not None:
        columns: list[Column] = [
            ("Address", Names(logins).of("address", words.NOTHING), False),
            ("User", text("user"), False),
            ("Times", told("count", words.number), True),
            ("First", when("first"), False),
            ("Last", when("last"), False),
        ]
        section.parts.append(listing("Failed log-ins", found, columns, logins))
    return section


def _grave_first(findings: DataFrame) -> list[Any]:
    rank = F.lit(0)
    for place, severity in enumerate(_SEVERITIES, 1):
        rank = F.when(F.col("severity") == severity, place).otherwise(rank)
    columns: list[Column] = [
        ("Severity", lambda row: Cell(str(row["severity"]), _SEVERITIES.get(row["severity"], BAD)), False),
        ("What", Names(findings).of("sentence"), False),
        ("Time", when("time"), False),
        ("Kind", lambda row: _measure(row["kind"]), False),
    ]
    return [listing("Findings", rows(findings, [rank, F.desc("time"), F.col("sentence")]), columns, findings)]
