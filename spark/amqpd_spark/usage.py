"""`amqpd-spark usage`: who sends how much where, and which queues nobody uses.

What comes in: the audit log. What goes out: the tables usage_by_user, usage_by_queue, usage_by_exchange,
idle_queues, fanout, queue_age.
Rules: 1. Stretches are added up as they are; only ages ask what became of each message. 2. What is recorded as events
is added up from them, what is not from `counted` rows; in an hour in which a queue (or a user of a virtual host) has
events, its counts are left out, so nothing counts twice; `source` says which it was. 3. Sums need each event once,
and leaving out the second ones costs a shuffle of all rows; so it is first asked, cheaply, whether any came twice at
all. 4. `node` is the first key of every table: of a queue its place (`books/places.py`), of a user and of an exchange
the node whose log it is.
Not here: which queues are idle (`idle.py`), how old messages get (`ages.py`), latencies (`slo`), what is missing
(`conservation`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import click
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from amqpd_spark.ages import QUEUE, queue_ages
from amqpd_spark.books.places import place
from amqpd_spark.events import IDENTITY
from amqpd_spark.idle import idle_queues
from amqpd_spark.options import DAYS_MAX, Options, job_command, number
from amqpd_spark.schema import ENDS
from amqpd_spark.session import expect, kept
from amqpd_spark.stretches.scan import Rows

IDLE_DAYS = 7
TOP = 10

OF_PUBLISHERS = ("published", "returned", "unroutable")
OF_QUEUES = ("routed", "delivered", *ENDS)
# Event -> the figure of `counted` that is the same, and the name of the column; they have no figure for the rest.
FIGURES = {event: "accepted" if event == "routed" else event for event in OF_QUEUES}
BY_DATE = ("usage_by_user", "usage_by_queue", "usage_by_exchange", "fanout")


@dataclass(frozen=True)
class Census:
    """`end`: the time of the last event; `last_incarnations`: of each node, and of each source its last epoch;
    `leaders`: the nodes that wrote of a source."""

    events: int
    unique: int
    end: datetime
    last_incarnations: dict[str, int]
    nodes: frozenset[str]
    leaders: frozenset[str]


def census(events: DataFrame) -> Census:
    """How many events there are, and how many different ones: a bitmap of their numbers is exact, and small."""
    number = F.col("number")
    # An event is of one source, so this counts none twice.
    keys = ("node", place().alias("place"), "incarnation", F.bitmap_bucket_number(number).alias("bucket"))
    bitmaps = events.groupBy(*keys).agg(
        F.count("*").alias("events"),
        F.bitmap_count(F.bitmap_construct_agg(F.bitmap_bit_position(number))).alias("unique"),
        F.max(F.unix_micros("time")).alias("end"),
        F.max("source_epoch").alias("epoch"),
    )
    # A row for each broker and source.
    found = bitmaps.groupBy("node", "place").agg(
        *(F.sum(name).alias(name) for name in ("events", "unique")),
        *(F.max(name).alias(name) for name in ("end", "incarnation", "epoch")),
    )
    rows = found.collect()
    incarnations: dict[str, int] = {}
    for row in rows:
        incarnations[row["node"]] = max(row["incarnation"], incarnations.get(row["node"], 0))
        if row["place"] != row["node"]:
            incarnations[row["place"]] = max(row["epoch"] or 0, incarnations.get(row["place"], 0))
    end = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=max((row["end"] for row in rows), default=0))
    nodes = frozenset(row["node"] for row in rows)
    leaders = frozenset(row["node"] for row in rows if row["place"] != row["node"])
    count, unique = (sum(row[name] for row in rows) for name in ("events", "unique"))
    return Census(count, unique, end, incarnations, nodes, leaders)


def facts(events: DataFrame, duplicates: bool) -> DataFrame:
    """Sums for each hour of what the tables are made of: messages, bytes, redelivered, last."""
    event = F.col("event")
    wanted = events.where(event.isin(*OF_PUBLISHERS, *OF_QUEUES, "counted")).select(
        *IDENTITY,
        *("event", "time", "vhost", "queue", "user", "exchange", "count", "body_bytes", "redelivered"),
        place().alias("place"),
        F.when(event == "counted", F.col("detail")).alias("figure"),
        F.when(event.isin("published", "routed"), F.col("reason")).alias("by_broker"),
    )
    if duplicates:
        wanted = wanted.dropDuplicates(list(IDENTITY))
    # What a table does not tell apart is not told apart here: the sums stay few.
    user = F.when(event.isin(*OF_PUBLISHERS, "counted"), F.col("user"))
    exchange = F.when(event.isin(*OF_PUBLISHERS, "routed"), F.col("exchange"))
    hour = F.date_trunc("hour", "time")
    names = "node", "place", "vhost", "queue", user.alias("user"), exchange.alias("exchange")
    return wanted.groupBy(hour.alias("hour"), "event", *names, "figure", "by_broker").agg(
        F.sum("count").alias("messages"),
        F.sum(F.col("count") * F.col("body_bytes")).alias("bytes"),
        F.sum(F.when(F.col("redelivered"), F.col("count")).otherwise(0)).alias("redelivered"),
        F.max(F.when(F.col("count") > 0, F.col("time"))).alias("last"),
    )


def _sum(condition: Column, of: str = "messages") -> Column:
    return F.sum(F.when(condition, F.col(of)).otherwise(0))


def _by_source(
    hours: DataFrame, keys: tuple[str, ...], figures: dict[str, tuple[Column, Column | None]]
) -> DataFrame:
    """A row for each date, keys and source. `figures`: column -> its sum from events, its sum from counts (None:
    counts do not tell)."""
    counted = F.col("event") == "counted"
    sums = [each for name, (ours, theirs) in figures.items() for each in _pair(name, ours, theirs)]
    each_hour = hours.groupBy("hour", *keys).agg(_sum(~counted, "one").alias("events"), *sums)
    events = F.col("events") > 0
    source = F.when(events, "events").otherwise("counts")
    chosen = each_hour.select(
        F.to_date("hour").alias("date"),
        *keys,
        source.alias("source"),
        *(F.when(events, F.col(f"{name}_events")).otherwise(F.col(f"{name}_counts")).alias(name) for name in figures),
    )
    return chosen.groupBy("date", *keys, "source").agg(*(F.sum(name).alias(name) for name in figures))


def _pair(name: str, ours: Column, theirs: Column | None) -> tuple[Column, Column]:
    unknown = F.max(F.lit(None).cast("long"))
    return ours.alias(f"{name}_events"), (unknown if theirs is None else theirs).alias(f"{name}_counts")


def by_user(hours: DataFrame) -> DataFrame:
    event, figure = F.col("event"), F.col("figure")
    # What the broker publishes itself has the reason why; its first publish was its user's.
    published = (event == "published") & F.col("by_broker").isNull()
    counted = (event == "counted") & F.col("queue").isNull()
    rows = hours.where((event.isin(*OF_PUBLISHERS) | counted) & F.col("user").isNotNull())
    rows = rows.where((event != "published") | published)
    figures: dict[str, tuple[Column, Column | None]] = {
        "published": (_sum(published), _sum(counted & (figure == "published"))),
        "published_bytes": (_sum(published, "bytes"), _sum(counted & (figure == "published_bytes"))),
        "returned": (_sum(event == "returned"), None),
        "unroutable": (_sum(event == "unroutable"), None),
    }
    return _by_source(rows.withColumn("one", F.lit(1)), ("node", "vhost", "user"), figures)


def by_queue(hours: DataFrame) -> DataFrame:
    event, figure = F.col("event"), F.col("figure")
    counted = (event == "counted") & F.col("queue").isNotNull()
    rows = hours.where(event.isin(*OF_QUEUES) | counted).withColumn("node", F.col("place"))
    figures: dict[str, tuple[Column, Column | None]] = {
        FIGURES[name]: (_sum(event == name), _sum(counted & (figure == FIGURES[name]))) for name in OF_QUEUES
    }
    figures["accepted_bytes"] = _sum(event == "routed", "bytes"), None
    figures["delivered_bytes"] = _sum(event == "delivered", "bytes"), None
    figures["redelivered"] = _sum(event == "delivered", "redelivered"), None
    return _by_source(rows.withColumn("one", F.lit(1)), QUEUE, figures)


def by_exchange(hours: DataFrame) -> DataFrame:
    """Only from events: counts do not tell exchanges apart."""
    event, by_broker = F.col("event"), F.col("by_broker")
    rows = hours.where(event.isin(*OF_PUBLISHERS, "routed")).withColumn("date", F.to_date("hour"))
    published = (event == "published") & by_broker.isNull()
    return rows.groupBy("date", "node", "vhost", "exchange").agg(
        _sum(published).alias("published"),
        _sum(published, "bytes").alias("published_bytes"),
        _sum((event == "published") & by_broker.isNotNull()).alias("by_broker"),
        # A delayed message waits in a queue of the broker's own, and is published again when it is due: the same
        # message, which is not counted as another one, and that queue's copy not as one of its exchange's.
        _sum((event == "published") & ~by_broker.eqNullSafe("delayed")).alias("publications"),
        _sum((event == "routed") & ~by_broker.eqNullSafe("delayed")).alias("copies"),
        _sum(event == "returned").alias("returned"),
        _sum(event == "unroutable").alias("unroutable"),
    )


def fanout(exchanges: DataFrame) -> DataFrame:
    share = F.col("copies") / F.when(F.col("publications") > 0, F.col("publications"))
    return exchanges.select("date", "node", "vhost", "exchange", "publications", "copies", share.alias("copies_each"))


def tables(
    rows: Rows, counted: Census, parts: int, until: datetime | None = None, idle_days: int = IDLE_DAYS
) -> dict[str, DataFrame]:
    """Name -> table; each is small beside the log. `parts`: tasks of a shuffle of the log."""
    events, end = rows.events, until or counted.end
    # Sums of an hour: read four times, made once.
    hours = kept(facts(events, duplicates=counted.unique < counted.events))
    ages = kept(queue_ages(rows, counted.last_incarnations, end, parts))
    exchanges = by_exchange(hours)
    return {
        "usage_by_user": by_user(hours),
        "usage_by_queue": by_queue(hours),
        "usage_by_exchange": exchanges.drop("publications"),
        "idle_queues": idle_queues(events, hours, ages, counted.leaders, end, idle_days),
        "fanout": fanout(exchanges),
        "queue_age": ages,
    }


@job_command("usage")
@number("--idle", 1, IDLE_DAYS, "DAYS", "A queue that took and gave nothing for so long is idle.", DAYS_MAX)
@click.option("--top", type=click.IntRange(1, 100), default=TOP, show_default=True, help="Lines of each list here.")
def command(options: Options, idle: int, top: int) -> None:
    """Messages and bytes by user, queue and exchange and day; idle queues, fan-out, how old messages get.

    Example: who sent how much in November, and which queues can go?

    \b
      amqpd-spark usage --input /var/lib/amqpd/audit/events --output /srv/audit/usage \\
          --since 2026-11-01 --until 2026-12-01 --idle 14
    """
    spark = options.session()
    options.ready(spark)
    log = options.log(spark, holes=False)
    shares = log.rows.tasks(log.inventory)
    # What is kept has as many parts as its shuffle; Spark's usual 200 tasks would be most of the time.
    expect(spark, shares)
    counted = census(log.events)
    made = tables(log.rows, counted, shares, options.until, idle)
    for name, table in made.items():
        parts = ["date"] if name in BY_DATE else []
        table.coalesce(1).write.mode("overwrite").partitionBy(*parts).parquet(options.table(name))
    # Those without dates are whole in their files; the others may have days of other runs there.
    _tell(
        {name: table if name in BY_DATE else spark.read.parquet(options.table(name)) for name, table in made.items()},
        options,
        top,
        several=len(counted.nodes) > 1,
    )


def _tell(made: dict[str, DataFrame], options: Options, top: int, several: bool) -> None:
    """`several`: nodes, so each is named."""

    def named(row: Row, name: str) -> str:
        return f"{row[name]} in {row['vhost']}" + (f" at {row['node']}" if several else "")

    totals = (
        made["usage_by_user"]
        .groupBy("node", "vhost", "user")
        .agg(F.sum("published").alias("messages"), F.sum("published_bytes").alias("bytes"))
    )
    click.echo("Top talkers")
    for row in totals.orderBy(F.desc("bytes"), "node", "vhost", "user").limit(top).collect():
        click.echo(f"  {row['messages']:>15,} messages {_size(row['bytes']):>12}  {named(row, 'user')}")
    queues = (
        made["usage_by_queue"]
        .groupBy(*QUEUE)
        .agg(F.sum("accepted").alias("accepted"), F.sum("delivered").alias("delivered"))
    )
    click.echo("\nBusiest queues")
    for row in queues.orderBy(F.desc("accepted"), *QUEUE).limit(top).collect():
        line = f"  {row['accepted']:>15,} in {row['delivered']:>15,} delivered  {named(row, 'queue')}"
        click.echo(line)
    old = made["queue_age"].where(F.col("standing") > 0).orderBy(F.desc("oldest_age_s")).limit(top).collect()
    click.echo("\nOldest messages" if old else "\nNo messages are left in queues")
    for row in old:
        word = "at least " if row["oldest_is_at_least"] else ""
        age = timedelta(seconds=round(row["oldest_age_s"]))
        click.echo(f"  {word}{age}, {row['standing']:,} standing  {named(row, 'queue')}")
    idle = made["idle_queues"].count()
    click.echo(f"\n{idle:,} idle queue{'' if idle == 1 else 's'}. The tables are in {options.output}")


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.1f} {unit}" if unit != "B" else f"{count:,} B"
        count /= 1000
    return f"{count:,.1f} TB"
