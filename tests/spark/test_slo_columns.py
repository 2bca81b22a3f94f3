"""What `slo` does with columns, without Spark: buckets, percentiles, messages of stretches, sums, packed columns."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any
from zipimport import zipimporter

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from amqpd_spark import flows, histogram, rates
from amqpd_spark.latencies import MEASURES
from amqpd_spark.pieces import PIECES, pieces
from amqpd_spark.slo_sums import HISTOGRAM, RATES, Shares, added, of_pieces
from amqpd_spark.stretches.chunk import Chunk
from amqpd_spark.stretches.packed import of_columns, packed, short_of_zips, spread, together, unpacked
from amqpd_spark.stretches.sums import summed
from amqpd_spark.stretches.sweep import BLOCK
from tests.spark.log import START, TYPES, Log

QUEUE: dict[str, Any] = {"queue": "q", "queue_id": 7, "exchange": "x"}
PUBLISHER: dict[str, Any] = {"exchange": "x", "connection": "c1", "channel": 1}
PARTS = 3


@pytest.fixture
def log(tmp_path: Any) -> Log:
    return Log(tmp_path / "log")


def chunk(rows: Iterable[dict[str, Any]]) -> Chunk:
    held = list(rows)
    return Chunk(pa.table({name: pa.array([row.get(name) for row in held], kind) for name, kind in TYPES.items()}))


def batches_of(rows: list[dict[str, Any]], shares: Shares) -> list[pa.RecordBatch]:
    """What the tasks of both shuffles make of the rows; each file has half of them."""
    sent: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for half in (rows[::2], rows[1::2]):
        for batch in pieces(PARTS)(iter([chunk(half)])):
            sent[batch.column("part")[0].as_py()].append(batch)
    summed_up: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for part in sent.values():
        for batch in of_pieces(shares)(part):
            summed_up[batch.column("part")[0].as_py()].append(batch)
    return [batch for part in summed_up.values() for batch in added(part)]


def measured(rows: list[dict[str, Any]]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """(node, exchange, queue, measure, minute, bucket) -> (count, sum_us, max_us); (node, exchange, queue, minute) ->
    figures that are not 0."""
    names: dict[int, flows.Names] = {}
    tables = defaultdict(list)
    for what, _, table in unpacked(batches_of(rows, Shares(2, 2))):
        tables[what].append(table)
    for table in tables["names"]:
        names |= flows.read(table)
    made = {}
    for row in pa.concat_tables(tables[HISTOGRAM]).to_pylist() if tables[HISTOGRAM] else []:
        node, _, exchange, queue = names[row["flow"]]
        key = node, exchange, queue, MEASURES[row["measure"]], row["minute"], row["bucket"]
        assert key not in made
        made[key] = row["count"], row["sum_us"], row["max_us"]
    figures = {}
    for row in of_columns(rates.wide(together(tables[RATES]))).to_pylist() if tables[RATES] else []:
        node, _, exchange, queue = names[row["flow"]]
        figures[node, exchange, queue, row["minute"]] = {
            name: value for name, value in row.items() if name in rates.FIGURES and value
        }
    return made, figures


def message_by_message(rows: list[dict[str, Any]]) -> dict[Any, Any]:
    """The histogram of one queue, from a dictionary of its messages."""
    seen: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for number in range(row["first"], row["first"] + row["count"]):
            seen[number][row["event"]].append(round(row["time"].timestamp() * 1e6))
    made: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    for of in seen.values():
        found = []
        if of["routed"] and of["delivered"]:
            found.append(("publish_to_deliver", min(of["routed"]), min(of["delivered"])))
        if of["delivered"] and of["acked"]:
            found.append(("deliver_to_ack", max(of["delivered"]), min(of["acked"])))
        for measure, since, until in found:
            us = max(until - since, 0)
            known = "x" if of["routed"] else None
            figures = made["n1", known, "q", measure, since // 60_000_000, histogram.bucket_of(us)]
            figures[:] = figures[0] + 1, figures[1] + us, max(figures[2], us)
    return {key: tuple(figures) for key, figures in made.items()}


def test_buckets_of_columns_are_those_of_numbers_of_all_sizes():
    near = {2**power + by for power in range(63) for by in (-2, -1, 0, 1, 2)}
    spread_out = np.random.default_rng(1).integers(0, 63, 10_000)
    some = np.random.default_rng(2).integers(0, 2**62, 10_000) >> spread_out
    us = np.array([*(number for number in near if number < 2**63), -1, -(2**40), *some.tolist()], np.int64)
    assert histogram.buckets(us).tolist() == [histogram.bucket_of(number) for number in us.tolist()]


def test_a_buckets_midpoint_is_near_what_is_in_it():
    us = np.array([2**power + by for power in range(50) for by in (-1, 0, 1)], np.int64)
    assert (np.abs(histogram.midpoints(histogram.buckets(us)) - us) <= us / 128).all()


def test_percentiles_are_by_nearest_rank_and_of_each_group():
    us = np.random.default_rng(7).lognormal(9, 1.5, 3000).astype(np.int64)
    of = np.arange(3000) % 2
    ones = np.ones(3000, np.int64)
    rows = {"flow": of, "bucket": histogram.buckets(us), "count": ones, "sum_us": us, "max_us": us}
    made = histogram.percentiles(rows, ("flow",))
    assert made["count"].tolist() == [1500, 1500]
    for group in (0, 1):
        for name, share in histogram.PERCENTILES.items():
            exact = np.percentile(us[of == group], share * 100, method="inverted_cdf") / 1000
            assert made[name][group] == pytest.approx(exact, rel=0.01), name
        assert made["max_ms"][group] == us[of == group].max() / 1000


def test_a_time_before_1970_is_a_time(log: Log):
    """A clock without a battery begins wherever it likes."""
    long_ago = -START.timestamp()
    rows = [log.add("routed", at=long_ago - 0.000_001, first=1, **QUEUE)]
    rows += [log.add("delivered", at=long_ago + 0.25, first=1, **QUEUE)]
    found, _ = measured(rows)
    ((key, figures),) = found.items()
    assert key[3:5] == ("publish_to_deliver", -1)
    assert figures == (1, 250_001, 250_001)


def test_a_hot_queue_is_spread_over_tasks_and_its_messages_are_matched_there(log: Log):
    count = 2 * BLOCK
    rows = [log.add("routed", at=0, first=5 + part * 60_000, count=60_000, **QUEUE) for part in range(2)]
    rows += [log.add("routed", at=0, first=120_005, count=count - 120_000, **QUEUE)]
    rows += [log.add("delivered", at=1 + at, first=5 + at * 1000, count=1000, **QUEUE) for at in range(count // 1000)]
    parts = {batch.column("part")[0].as_py() for batch in pieces(64)(iter([chunk(rows)]))}
    assert len(parts) > 2
    found = measured(rows)[0]
    assert found == message_by_message(rows)
    assert sum(count for count, _, _ in found.values()) == count // 1000 * 1000


@pytest.mark.parametrize("seed", range(8))
def test_stretches_that_overlap_are_counted_as_their_messages_one_by_one_are(log: Log, seed: int):
    """Rows come twice, in any order, of messages that the log never saw enter, over the edge of a block."""
    draw = np.random.default_rng(seed)
    rows = []
    for event in draw.choice(("routed", "delivered", "acked"), 60):
        first = BLOCK - 40 + int(draw.integers(0, 70))
        at = float(draw.integers(0, 200))
        rows.append(log.add(str(event), at=at, first=first, count=int(draw.integers(1, 30)), **QUEUE))
    again = [rows[at] for at in draw.permutation(len(rows))]
    assert measured(rows + again)[0] == message_by_message(rows)


def test_rates_count_a_row_once_and_rows_of_other_incarnations_and_nodes_by_themselves(log: Log):
    rows = [log.add("routed", first=0, count=9, **QUEUE), log.add("requeued", first=0, count=2, **QUEUE)]
    # Over the edge of a block: two pieces of one row.
    rows += [log.add("delivered", first=BLOCK - 3, count=7, redelivered=True, **QUEUE)]
    rows += [log.add("published", count=5, **PUBLISHER), log.add("published", count=5, reason="dead_letter")]
    rows += [log.add("routed", first=0, count=1, incarnation=2, **QUEUE)]
    rows += [log.add("routed", first=0, count=1, node="n2", **QUEUE)]
    minute = round(rows[0]["time"].timestamp()) // 60
    expected = {
        ("n1", None, "q", minute): {"routed": 10, "requeued": 2, "delivered": 7, "redelivered": 7},
        ("n2", None, "q", minute): {"routed": 1},
        ("n1", "x", None, minute): {"published": 5},
    }
    assert measured(rows)[1] == expected
    assert measured([*rows, *reversed(rows)])[1] == expected


def test_a_queue_of_a_source_is_there_and_its_publisher_at_the_node(log: Log):
    tags: dict[str, Any] = {"confirm_tag": 1, "publication": 1}
    rows = [log.add("published", **tags, **PUBLISHER), log.add("confirmed", at=1, **tags, **PUBLISHER)]
    of_source: dict[str, Any] = {"source": 5, "source_epoch": 2, **QUEUE}
    rows += [log.add("routed", first=0, **of_source), log.add("delivered", at=1, first=0, **of_source)]
    found, figures = measured(rows)
    assert {key[:4] for key in found} == {
        ("n1", "x", None, "publish_to_confirm"),
        ("source 5", "x", "q", "publish_to_deliver"),
    }
    assert {key[:3] for key in figures} == {("n1", "x", None), ("source 5", None, "q")}


def test_a_publish_that_was_refused_is_a_rate_in_the_minute_of_the_publish(log: Log):
    rows = [log.add("published", count=3, confirm_tag=1, publication=1, **PUBLISHER)]
    rows += [log.add("refused", at=70, count=2, confirm_tag=2, publication=2, connection="c1", channel=1)]
    found, figures = measured(rows)
    assert found == {}
    assert list(figures.values()) == [{"published": 3, "refused": 2}]


def test_rates_are_the_same_after_they_were_a_table():
    draw = np.random.default_rng(3)
    keys = {"flow": draw.integers(0, 5, 200), "minute": draw.integers(0, 9, 200)}
    rows = rates.added(
        keys | {"figure": draw.integers(0, len(rates.FIGURES), 200), "count": draw.integers(1, 9, 200)}
    )
    table = rates.wide(rows)
    again = rates.wide(rates.added(rates.long(table)))
    assert {name: column.tolist() for name, column in again.items()} == {
        name: column.tolist() for name, column in table.items()
    }


def test_what_has_no_figure_but_0_is_in_the_table_too():
    row = {name: np.zeros(1, np.int64) for name in rates.FIGURES} | {"flow": np.array([4]), "minute": np.array([2])}
    assert rates.wide(rates.long(row))["flow"].tolist() == [4]


@pytest.mark.parametrize("spans", [(10, 10), (2**62, 10), (2**62, 2**62, 2**62), (2**40, 2**40)])
def test_sums_are_exact_whatever_numbers_keys_are(spans: tuple[int, ...]):
    draw = np.random.default_rng(5)
    keys = {f"key{at}": draw.integers(-span, span, 40)[draw.integers(0, 40, 900)] for at, span in enumerate(spans)}
    values = draw.integers(2**53, 2**54, 900)
    expected = Counter[tuple[int, ...]]()
    for *key, value in zip(*(column.tolist() for column in keys.values()), values.tolist(), strict=True):
        expected[tuple(key)] += value
    made = summed(keys | {"value": values, "most": values}, list(keys), ("value",), ("most",))
    found = list(zip(*(made[name].tolist() for name in keys), strict=True))
    assert dict(zip(found, made["value"].tolist(), strict=True)) == expected
    assert found == sorted(found)


def test_sums_have_groups_where_combinations_are_too_many_for_one_number():
    keys = {f"key{at}": np.random.default_rng(at).permutation(2**20) for at in range(4)}
    made = summed(keys | {"value": np.ones(2**20, np.int64)}, list(keys), ("value",))
    assert (len(made["value"]), made["value"].max()) == (2**20, 1)


def test_columns_come_out_of_the_bytes_as_they_went_in_and_in_their_part():
    draw = np.random.default_rng(6)
    columns: dict[str, NDArray[Any]] = {"number": np.arange(1000), "kind": draw.integers(0, 5, 1000).astype(np.int8)}
    part = draw.integers(0, 4, 1000)
    found = {}
    for batch in spread(PIECES, part, 9, columns):
        for what, number, table in unpacked([batch]):
            assert what == PIECES
            found[number] = together([table])
    assert sorted(found) == [0, 1, 2, 3]
    for number, made in found.items():
        assert made["number"].tolist() == np.flatnonzero(part == number).tolist()
        assert made["kind"].tolist() == columns["kind"][part == number].tolist()


def test_after_a_task_no_archive_is_left_to_be_read_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    archive = tmp_path / "some.zip"
    # The least that is an archive: the end of a directory with nothing in it.
    archive.write_bytes(b"PK\x05\x06" + bytes(18))
    monkeypatch.setitem(sys.path_importer_cache, str(archive), zipimporter(str(archive)))
    one = packed(PIECES, of_columns({"number": np.arange(3)}))
    assert list(short_of_zips(lambda batches: iter(batches))([one])) == [one]
    assert str(archive) not in sys.path_importer_cache
