"""What happened in each minute: to each queue, and to each exchange's publishes.

What comes in: events. What goes out: a row for each minute and queue (exchange null), and for each minute and
exchange (queue null), with a column for each figure.
Rules: 1. Stretches are added up, never messages. 2. An event that comes twice counts once: (node, life, number) goes
through the shuffle with five other numbers, and no text.
Not here: refused publishes: their event does not say the exchange, so they come from `latencies.py`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqpd_spark.flows import flow, none
from amqpd_spark.latencies import REFUSED
from amqpd_spark.schema import OF_PUBLICATIONS

OF_EXCHANGES = ("published", "returned", "unroutable", REFUSED)
OF_QUEUES = ("routed", "delivered", "redelivered", "requeued", "acked", "rejected", "expired", "dropped")
FIGURES = (*OF_EXCHANGES, *OF_QUEUES)
_DEAD_LETTERED = {"expired": "expired", "maxlen": "dropped", "rejected": "rejected", "delivery_limit": "rejected"}
_CODES = {name: code for code, name in enumerate(FIGURES)}


def rates(events: DataFrame) -> DataFrame:
    """flow, minute, FIGURES."""
    code = _code()
    narrow = events.select(
        F.xxhash64("node", "life").alias("origin"),
        "number",
        code.alias("code"),
        F.when(F.col("event").isin(*OF_PUBLICATIONS), flow(F.col("vhost"), F.col("exchange"), none()))
        .otherwise(flow(F.col("vhost"), none(), F.col("queue")))
        .alias("flow"),
        F.floor(F.unix_micros("time") / 60_000_000).alias("minute"),
        "count",
    ).where(F.col("code").isNotNull())
    once = narrow.groupBy("origin", "number").agg(
        *(F.max(name).alias(name) for name in ("code", "flow", "minute", "count"))
    )
    return (
        once.groupBy("flow", "minute")
        .agg(*(_figure(name).alias(name) for name in FIGURES))
        .withColumn("minute", F.timestamp_seconds(F.col("minute") * 60))
    )


def _code() -> Column:
    event, reason = F.col("event"), F.col("reason")
    # The broker's own publishes are of messages that it was given before.
    found = F.when((event == "published") & reason.isNull(), _CODES["published"])
    found = found.when((event == "delivered") & F.col("redelivered"), _CODES["redelivered"])
    for cause, figure in _DEAD_LETTERED.items():
        found = found.when((event == "dead_lettered") & (reason == cause), _CODES[figure])
    for name in ("returned", "unroutable", *(each for each in OF_QUEUES if each != "redelivered")):
        found = found.when(event == name, _CODES[name])
    return found


def _figure(name: str) -> Column:
    meant = F.col("code").isin(_CODES["delivered"], _CODES["redelivered"]) if name == "delivered" else None
    return F.sum(
        F.when(F.col("code") == _CODES[name] if meant is None else meant, F.col("count")).otherwise(
            F.lit(0).cast("long")
        )
    )


def with_refused(named: DataFrame, histogram: DataFrame) -> DataFrame:
    """Rates of all names, with what publishers were refused (of a histogram with names)."""
    zeros = {name: F.lit(0).cast("long").alias(name) for name in FIGURES}
    refused = histogram.where(F.col("measure") == REFUSED).select(
        *("vhost", "exchange", "queue", "minute"), *({**zeros, REFUSED: F.col("count").alias(REFUSED)}.values())
    )
    return added(named.unionByName(refused))


def added(named: DataFrame) -> DataFrame:
    return named.groupBy("vhost", "exchange", "queue", "minute").agg(*(F.sum(name).alias(name) for name in FIGURES))
