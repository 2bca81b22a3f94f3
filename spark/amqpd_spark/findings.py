"""The rules of the job `security`: from acts to findings.

What comes in: acts, each once. What goes out: failed log-ins, addresses, findings.
Rules: 1. A burst is a run of failures with at most `within_s` between two, in which at some time `burst` of them are
within `within_s`. 2. A log-in that succeeds in a burst, or `within_s` after it, is what the burst was for. 3. An
address is new to a user when it came first after the log's first `learn_days` days. 4. Privileges changed from an
address that is new to who did it weigh more than the same change from a known one.
Not here: the command (`security.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from amqpd_spark.schema import ACTS

SEVERITIES = ("high", "medium", "low")
PRIVILEGES = {
    "user_put": "medium",
    "user_deleted": "medium",
    "permission_put": "medium",
    "permission_deleted": "medium",
    "vhost_deleted": "medium",
    "policy_put": "low",
    "policy_deleted": "low",
}
COLUMNS = ("kind", "severity", "time", "until", "user", "address", "vhost", "object", "count", "sentence")
_OF_ACTS = ("event", "time", "node", "life", "number", "vhost", "user", "address", "object", "detail", "reason")


@dataclass(frozen=True)
class Limits:
    burst: int = 10
    within_s: int = 60
    learn_days: int = 7


def acts(events: DataFrame) -> DataFrame:
    """The acts' columns that findings are made from."""
    return events.where(F.col("event").isin(*ACTS)).select(*_OF_ACTS)


def tables(found: DataFrame, limits: Limits) -> dict[str, DataFrame]:
    """failed_logins, addresses, findings. Acts are read several times: they are cached by who has them from far."""
    kept = found.localCheckpoint()
    known = addresses(kept, limits).localCheckpoint()
    parts = [
        *(_bursts(kept, limits, by) for by in ("address", "user")),
        _refused(kept),
        _new_addresses(known),
        _privileges(kept, known),
    ]
    findings = parts[0]
    for part in parts[1:]:
        findings = findings.unionByName(part)
    return {"failed_logins": failed_logins(kept), "addresses": known, "findings": findings}


def failed_logins(found: DataFrame) -> DataFrame:
    """user, address, count, first, last, reasons."""
    return (
        found.where(F.col("event") == "login_failed")
        .groupBy("user", "address")
        .agg(
            F.count("*").alias("count"),
            F.min("time").alias("first"),
            F.max("time").alias("last"),
            F.array_sort(F.collect_set("reason")).alias("reasons"),
        )
    )


def addresses(found: DataFrame, limits: Limits) -> DataFrame:
    """user, address, count, first, last (of log-ins that succeeded), new, others: whether the user had come from
    another one before."""
    begin = found.agg(F.min("time").alias("begin"))
    opened = found.where((F.col("event") == "connection_opened") & F.col("user").isNotNull())
    seen = opened.groupBy("user", "address").agg(
        F.count("*").alias("count"), F.min("time").alias("first"), F.max("time").alias("last")
    )
    learnt = F.col("begin") + F.make_dt_interval(days=F.lit(limits.learn_days))
    first_of_user = F.min("first").over(Window.partitionBy("user"))
    return (
        seen.join(F.broadcast(begin))
        .withColumn("new", F.col("first") >= learnt)
        .withColumn("others", F.col("first") > first_of_user)
        .drop("begin")
    )


def _finding(kind: str, severity: Column, sentence: Column, **columns: Column) -> list[Column]:
    """COLUMNS; those that are not given are null, `count` is 1 and `until` the time."""
    text = F.lit(None).cast("string")
    given: dict[str, Column] = dict.fromkeys(("user", "address", "vhost", "object"), text)
    given |= {"time": F.col("time"), "until": F.col("time"), "count": F.lit(1).cast("long"), **columns}
    given |= {"kind": F.lit(kind), "severity": severity, "sentence": sentence}
    return [given[name].alias(name) for name in COLUMNS]


def _bursts(found: DataFrame, limits: Limits, by: str) -> DataFrame:
    """Of each address, or of each user."""
    failed = found.where((F.col("event") == "login_failed") & F.col(by).isNotNull()).withColumn(
        "_us", F.unix_micros("time")
    )
    within = limits.within_s * 1_000_000
    ordered = Window.partitionBy(by).orderBy("_us")
    marked = failed.withColumn("_within", F.count("*").over(ordered.rangeBetween(-within, 0))).withColumn(
        "_begins", (F.coalesce(F.col("_us") - F.lag("_us").over(ordered), F.lit(within + 1)) > within).cast("int")
    )
    # Failures of the same microsecond follow each other, whichever is first.
    runs = marked.withColumn("_run", F.sum("_begins").over(ordered.rowsBetween(Window.unboundedPreceding, 0)))
    bursts = (
        runs.groupBy(by, "_run")
        .agg(
            *(F.min("time").alias("time"), F.max("time").alias("until"), F.count("*").alias("count")),
            F.max("_within").alias("_most"),
        )
        .where(F.col("_most") >= limits.burst)
    )
    told = bursts.join(_successes(found, by), by, "left").groupBy(by, "time", "until", "count")
    after = (F.col("_at") >= F.col("time")) & (
        F.col("_at") <= F.col("until") + F.make_dt_interval(secs=F.lit(limits.within_s))
    )
    ended = told.agg(F.min(F.when(after, F.struct("_at", "_other"))).alias("_success"))
    who = F.col(by)
    what = F.concat(F.col("count"), F.lit(f" failed log-ins {'from' if by == 'address' else 'of'} "), who)
    success = F.concat(
        *(F.lit(", then a log-in "), F.lit("of " if by == "address" else "from ")),
        F.coalesce(F.col("_success._other"), F.lit("?")),
    )
    return ended.select(
        *_finding(
            f"burst_by_{by}",
            F.when(F.col("_success").isNotNull(), "high").otherwise("medium"),
            F.concat(what, F.when(F.col("_success").isNotNull(), success).otherwise("")),
            **{by: who, "user" if by == "address" else "address": F.col("_success._other")},
            until=F.col("until"),
            count=F.col("count"),
        )
    )


def _successes(found: DataFrame, by: str) -> DataFrame:
    other = "user" if by == "address" else "address"
    opened = found.where((F.col("event") == "connection_opened") & F.col(by).isNotNull())
    return opened.select(by, F.col("time").alias("_at"), F.col(other).alias("_other"))


def _refused(found: DataFrame) -> DataFrame:
    refused = found.where(F.col("event") == "permission_refused").groupBy("user", "vhost", "object")
    rows = refused.agg(F.min("time").alias("time"), F.max("time").alias("until"), F.count("*").alias("count"))
    sentence = F.concat(
        *(_said("user"), F.lit(" was refused "), _said("object"), F.lit(" in "), _said("vhost")),
        F.when(F.col("count") > 1, F.concat(F.lit(", "), F.col("count"), F.lit(" times"))).otherwise(""),
    )
    own = {name: F.col(name) for name in ("user", "vhost", "object", "until", "count")}
    return rows.select(*_finding("permission_refused", F.lit("low"), sentence, **own))


def _new_addresses(known: DataFrame) -> DataFrame:
    rows = known.where("new").withColumn("time", F.col("first"))
    moved = F.col("others")
    sentence = F.concat(
        _said("user"),
        F.when(moved, F.lit(" came from a new address, ")).otherwise(F.lit(" is new, and came from ")),
        _said("address"),
    )
    own = {"user": F.col("user"), "address": F.col("address"), "until": F.col("last"), "count": F.col("count")}
    return rows.select(*_finding("new_address", F.when(moved, "medium").otherwise("low"), sentence, **own))


def _privileges(found: DataFrame, known: DataFrame) -> DataFrame:
    changes = found.where(F.col("event").isin(*PRIVILEGES))
    new = known.where(F.col("new") & F.col("others")).select("user", "address", F.col("first").alias("_new_since"))
    rows = changes.join(new, ["user", "address"], "left")
    from_new = F.coalesce(F.col("time") >= F.col("_new_since"), F.lit(False))
    severity = F.lit("low")
    for event, name in PRIVILEGES.items():
        severity = F.when(F.col("event") == event, name).otherwise(severity)
    sentence = F.concat(
        *(_said("user"), F.lit(": "), F.col("event"), F.lit(" of "), _said("object")),
        F.coalesce(F.concat(F.lit(" with tags "), F.get_json_object("detail", "$.tags")), F.lit("")),
        F.when(from_new, F.concat(F.lit(", from the new address "), F.col("address"))).otherwise(""),
    )
    own = {name: F.col(name) for name in ("user", "address", "vhost", "object")}
    return rows.select(*_finding("privilege_changed", F.when(from_new, "high").otherwise(severity), sentence, **own))


def _said(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit("?"))
