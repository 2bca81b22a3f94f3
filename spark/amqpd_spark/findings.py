"""The rules of the job `security`: from acts to findings.

What comes in: acts, each once. What goes out: failed log-ins, addresses, findings.
Rules: 1. A burst is a run of failures with at most `within_s` between two, in which at some time `burst` of them are
within `within_s`. 2. A log-in that succeeds in a burst, or `within_s` after it, is what the burst was for. 3. An
address is new to a user when it came first after the first `learn_days` days of the node's log. 4. Privileges
changed from an address that is new to who did it weigh more than the same change from a known one. 5. A user is one
of a node: two brokers may have one of the same name. An address is the same wherever it comes to, so failures from it
are counted at all nodes together. 6. A change that a node of a cluster heard of is told by the node that was asked.
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
COLUMNS = ("kind", "severity", "time", "until", "node", "user", "address", "vhost", "object", "count", "sentence")
BROKER = "the broker"
"""who did what no user did"""
ECHO_S = 60
"""seconds between a change and its arrival at another node of the cluster, at most"""
_OF_ACTS = (
    "event",
    "time",
    "node",
    "incarnation",
    "number",
    "vhost",
    "user",
    "address",
    "object",
    "detail",
    "reason",
)


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
    kept = _asked_for(found.localCheckpoint())
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


def _asked_for(found: DataFrame) -> DataFrame:
    """Without changes that have no user here, and were asked for at another node."""
    same = ("event", "object", "detail")
    asked = found.where(F.col("event").isin(*PRIVILEGES) & F.col("user").isNotNull())
    asked = asked.select("node", "time", *same).withColumnsRenamed(
        {name: f"_{name}" for name in ("node", "time", *same)}
    )
    one = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in same]
    near = F.abs(F.unix_micros("time") - F.unix_micros("_time")) <= ECHO_S * 1_000_000
    echo = F.col("user").isNull() & (F.col("node") != F.col("_node")) & near
    return found.join(F.broadcast(asked), [*one, echo], "left_anti")


def failed_logins(found: DataFrame) -> DataFrame:
    """node, user, address, count, first, last, reasons."""
    return (
        found.where(F.col("event") == "login_failed")
        .groupBy("node", "user", "address")
        .agg(
            F.count("*").alias("count"),
            F.min("time").alias("first"),
            F.max("time").alias("last"),
            F.array_sort(F.collect_set("reason")).alias("reasons"),
        )
    )


def addresses(found: DataFrame, limits: Limits) -> DataFrame:
    """node, user, address, count, first, last (of log-ins that succeeded), new, others: whether the user had come
    from another one before."""
    begin = found.groupBy("node").agg(F.min("time").alias("begin"))
    opened = found.where((F.col("event") == "connection_opened") & F.col("user").isNotNull())
    seen = opened.groupBy("node", "user", "address").agg(
        F.count("*").alias("count"), F.min("time").alias("first"), F.max("time").alias("last")
    )
    learnt = F.col("begin") + F.make_dt_interval(days=F.lit(limits.learn_days))
    first_of_user = F.min("first").over(Window.partitionBy("node", "user"))
    return (
        seen.join(F.broadcast(begin), "node")
        .withColumn("new", F.col("first") >= learnt)
        .withColumn("others", F.col("first") > first_of_user)
        .drop("begin")
    )


def _finding(kind: str, severity: Column, sentence: Column, **columns: Column) -> list[Column]:
    """COLUMNS; those that are not given are null, `count` is 1 and `until` the time."""
    text = F.lit(None).cast("string")
    given: dict[str, Column] = dict.fromkeys(("node", "user", "address", "vhost", "object"), text)
    given |= {"time": F.col("time"), "until": F.col("time"), "count": F.lit(1).cast("long"), **columns}
    given |= {"kind": F.lit(kind), "severity": severity, "sentence": sentence}
    return [given[name].alias(name) for name in COLUMNS]


def _bursts(found: DataFrame, limits: Limits, by: str) -> DataFrame:
    """Of each address, or of each user of a node. `node` of an address is null where it came to several."""
    keys = ("address",) if by == "address" else ("node", "user")
    failed = found.where((F.col("event") == "login_failed") & F.col(by).isNotNull()).withColumn(
        "_us", F.unix_micros("time")
    )
    within = limits.within_s * 1_000_000
    ordered = Window.partitionBy(*keys).orderBy("_us")
    marked = failed.withColumn("_within", F.count("*").over(ordered.rangeBetween(-within, 0))).withColumn(
        "_begins", (F.coalesce(F.col("_us") - F.lag("_us").over(ordered), F.lit(within + 1)) > within).cast("int")
    )
    # Failures of the same microsecond follow each other, whichever is first.
    runs = marked.withColumn("_run", F.sum("_begins").over(ordered.rowsBetween(Window.unboundedPreceding, 0)))
    bursts = (
        runs.groupBy(*keys, "_run")
        .agg(
            F.when(F.min("node") == F.max("node"), F.min("node")).alias("_at_node"),
            *(F.min("time").alias("time"), F.max("time").alias("until"), F.count("*").alias("count")),
            F.max("_within").alias("_most"),
        )
        .where(F.col("_most") >= limits.burst)
    )
    told = bursts.join(_successes(found, keys), list(keys), "left").groupBy(
        *keys, "_at_node", "time", "until", "count"
    )
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
            node=F.col("_at_node"),
            until=F.col("until"),
            count=F.col("count"),
        )
    )


def _successes(found: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    other = "address" if "user" in keys else "user"
    opened = found.where((F.col("event") == "connection_opened") & F.col(keys[-1]).isNotNull())
    return opened.select(*keys, F.col("time").alias("_at"), F.col(other).alias("_other"))


def _refused(found: DataFrame) -> DataFrame:
    refused = found.where(F.col("event") == "permission_refused").groupBy("node", "user", "vhost", "object")
    rows = refused.agg(F.min("time").alias("time"), F.max("time").alias("until"), F.count("*").alias("count"))
    sentence = F.concat(
        *(_said("user"), F.lit(" was refused "), _said("object"), F.lit(" in "), _said("vhost")),
        F.when(F.col("count") > 1, F.concat(F.lit(", "), F.col("count"), F.lit(" times"))).otherwise(""),
    )
    own = {name: F.col(name) for name in ("node", "user", "vhost", "object", "until", "count")}
    return rows.select(*_finding("permission_refused", F.lit("low"), sentence, **own))


def _new_addresses(known: DataFrame) -> DataFrame:
    rows = known.where("new").withColumn("time", F.col("first"))
    moved = F.col("others")
    sentence = F.concat(
        _said("user"),
        F.when(moved, F.lit(" came from a new address, ")).otherwise(F.lit(" is new, and came from ")),
        _said("address"),
    )
    own = {name: F.col(name) for name in ("node", "user", "address", "count")} | {"until": F.col("last")}
    return rows.select(*_finding("new_address", F.when(moved, "medium").otherwise("low"), sentence, **own))


def _privileges(found: DataFrame, known: DataFrame) -> DataFrame:
    changes = found.where(F.col("event").isin(*PRIVILEGES))
    new = known.where(F.col("new") & F.col("others")).select(
        *("node", "user", "address", F.col("first").alias("_new_since"))
    )
    rows = changes.join(new, ["node", "user", "address"], "left")
    from_new = F.coalesce(F.col("time") >= F.col("_new_since"), F.lit(False))
    severity = F.lit("low")
    for event, name in PRIVILEGES.items():
        severity = F.when(F.col("event") == event, name).otherwise(severity)
    sentence = F.concat(
        *(_said("user"), F.lit(": "), F.col("event"), F.lit(" of "), _said("object")),
        F.coalesce(F.concat(F.lit(" with tags "), F.get_json_object("detail", "$.tags")), F.lit("")),
        F.when(from_new, F.concat(F.lit(", from the new address "), F.col("address"))).otherwise(""),
    )
    own = {name: F.col(name) for name in ("node", "user", "address", "vhost", "object")}
    return rows.select(*_finding("privilege_changed", F.when(from_new, "high").otherwise(severity), sentence, **own))


def _said(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit(BROKER if name == "user" else "?"))
