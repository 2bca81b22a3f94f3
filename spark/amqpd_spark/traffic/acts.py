"""What a broker writes besides its messages' events: starts, anchors' headers, acts, figures.

What comes in: a `Plan`, its `Cycle`. What goes out: DataFrames with the log's columns.
Rules: acts are some for each queue and incarnation, and a burst of failed log-ins; figures are one each minute and
queue of the first ones, level over an incarnation.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark.schema import EVENTS
from amqpd_spark.traffic.cycle import DEAD_QUEUE, Cycle, Plan, queues
from amqpd_spark.traffic.rows import ACTS, SECOND, STEPS, Clock, log_columns

COUNTED_QUEUES_MAX = 20
FAILED_LOG_INS = 300
FIGURES = ("accepted", "delivered", "acked")


def acts(spark: SparkSession, plan: Plan, cycle: Cycle) -> DataFrame:
    clock = Clock(plan, cycle)
    rows: list[dict[str, Any]] = []

    def add(event: str, at_us: int, incarnation: int, number: int | None = None, /, **columns: Any) -> None:
        if number is None:
            number = clock.number_of_act(at_us, incarnation, len(rows) % (ACTS // 2))
        rows.append({"event": event, "at": at_us, "incarnation": incarnation, "number": number, **columns})

    every = queues(plan)
    for incarnation in range(1, plan.incarnations + 1):
        begin = (incarnation - 1) * clock.incarnation_us
        how = {"version": "0.1.0", "level": "full", "orderly": incarnation == 1}
        add("started", begin, incarnation, 1, detail=json.dumps(how))
        for queue, (number, left, _) in cycle.anchors.items():
            about = {
                "vhost": queue.vhost,
                "queue": queue.name,
                "queue_id": queue.queue_id,
                "epoch": incarnation,
                "count": 0,
            }
            about |= {"reason": "recovered", "detail": str(left if incarnation > 1 else 0)}
            add("standing", begin + SECOND, incarnation, number, **about)
        for place, queue in enumerate(every):
            at = begin + 2 * SECOND + place * SECOND // 200
            for who in ("publisher", "consumer"):
                about = {"connection": f"{who} {queue.queue_id}:{incarnation}", "address": f"10.0.{place % 200}.7"}
                add("connection_opened", at, incarnation, user=queue.user, vhost=queue.vhost, **about)
    _of_people(plan, clock, add)
    end = plan.incarnations * clock.incarnation_us - SECOND
    for queue, (number, left, reached) in cycle.anchors.items():
        about = {"vhost": queue.vhost, "queue": queue.name, "queue_id": queue.queue_id, "epoch": plan.incarnations}
        number += clock.stop
        add(
            "standing",
            end,
            plan.incarnations,
            number,
            reason="stopped",
            detail=str(left),
            first=reached,
            count=0,
            **about,
        )
    add("stopped", end + SECOND // 2, plan.incarnations, clock.stop + cycle.anchor_end + 1)
    return _table(spark, plan, rows)


def ghost(spark: SparkSession, plan: Plan, cycle: Cycle) -> tuple[DataFrame, str]:
    """A message that is delivered, and never was routed; and what it is called."""
    clock = Clock(plan, cycle)
    queue = queues(plan)[0]
    at = clock.incarnation_us // 2
    first = 10**12
    number = clock.number_of_act(at, 1, ACTS // 2 - 1)
    row = {
        "event": "delivered",
        "at": at,
        "incarnation": 1,
        "number": number,
        "epoch": 1,
        "first": first,
        "consumer": "worker",
    }
    row |= {
        "vhost": queue.vhost,
        "queue": queue.name,
        "queue_id": queue.queue_id,
        "connection": "ghost",
        "channel": 1,
    }
    return _table(spark, plan, [row]), f"{queue.vhost} {queue.name} (id {queue.queue_id}, epoch 1) {first}"


def figures(spark: SparkSession, plan: Plan, cycle: Cycle) -> DataFrame:
    """`counted`: as many each minute of an incarnation."""
    clock = Clock(plan, cycle)
    minutes = max(1, clock.incarnation_us // (60 * SECOND))
    counted = [queue for queue in cycle.anchors if queue != DEAD_QUEUE][:COUNTED_QUEUES_MAX]
    sums = [
        {"which": which, "vhost": queue.vhost, "queue": queue.name, "each": cycle.anchors[queue][2] // minutes}
        for which, queue in enumerate(counted)
    ]
    table = spark.createDataFrame(sums, "which bigint, vhost string, queue string, each bigint")
    rows = spark.range(plan.incarnations * minutes * len(counted) * len(FIGURES), numPartitions=1)
    rows = rows.withColumns(
        {
            "figure": F.col("id") % len(FIGURES),
            "which": F.floor(F.col("id") / len(FIGURES)) % len(counted),
            "minute": F.floor(F.col("id") / (len(FIGURES) * len(counted))),
        }
    ).join(F.broadcast(table), "which")
    incarnation = F.floor(F.col("minute") / minutes) + 1
    at = (incarnation - 1) * clock.incarnation_us + (F.col("minute") % minutes) * 60 * SECOND + 59 * SECOND
    within = F.lit(clock.under_way * STEPS + ACTS // 2) + F.col("which") * len(FIGURES) + F.col("figure")
    values = {
        "event": F.lit("counted"),
        "time": clock.time(at),
        "node": F.lit(plan.node),
        "incarnation": incarnation,
        "number": clock.number(at, incarnation, within),
        "vhost": F.col("vhost"),
        "queue": F.col("queue"),
        "count": F.col("each"),
        "detail": F.element_at(F.array(*map(F.lit, FIGURES)), (F.col("figure") + 1).cast("int")),
    }
    return rows.select(*log_columns(values))


def _of_people(plan: Plan, clock: Clock, add: Any) -> None:
    at = clock.incarnation_us // 3
    operator = {"user": "operator", "address": "10.0.9.1", "connection": "operator 1"}
    for place, queue in enumerate(queues(plan)):
        about = {"object": f"queue {queue.name}", "detail": '{"durable": true}'}
        add("queue_declared", 3 * SECOND + place * SECOND // 200, 1, vhost=queue.vhost, **about, **operator)
    limit = json.dumps({"pattern": "^queue", "definition": {"max-length": 1_000_000}})
    add("policy_put", at, 1, vhost="/", object="policy limits", detail=limit, **operator)
    add("user_put", at + SECOND, 1, object="user mallory", detail='{"tags": ["administrator"]}', **operator)
    attacker = {"address": "203.0.113.9", "user": "admin"}
    for attempt in range(FAILED_LOG_INS):
        add("login_failed", at + attempt * SECOND // 5, 1, reason="wrong password", **attacker)
    for attempt in range(20):
        about = {"vhost": "shop", "object": "queue queue 0001", "detail": "read", "user": "mallory"}
        add("permission_refused", at + (100 + attempt) * SECOND, 1, address="203.0.113.9", **about)


def _table(spark: SparkSession, plan: Plan, rows: list[dict[str, Any]]) -> DataFrame:
    """One file: it is as long as there are queues and incarnations."""
    names = EVENTS.fieldNames()
    zero = {"bigint": 0, "int": 0, "boolean": False}
    empty = {field.name: zero.get(field.dataType.simpleString()) for field in EVENTS.fields}
    full = [
        {**empty, "node": plan.node, "count": 1, **row, "time": plan.start + timedelta(microseconds=row["at"])}
        for row in rows
    ]
    return spark.createDataFrame([tuple(row[name] for name in names) for row in full], EVENTS).coalesce(1)
