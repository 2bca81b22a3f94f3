"""Samples in answers: what a request says of them, and RabbitMQ's `x_details` objects with them.

What comes in: a request's parameters; rows, series. What goes out: ranges of time, or a refusal; rows that have
samples.
Rules: 1. Without both of a pair of parameters, or when one is no whole number, there are no samples; a pair that is
no range is refused, as in RabbitMQ. 2. `rate` stays what it was: of the last seconds. 3. Samples begin with the first
one that there is: none are made up in front of it. 4. One answer has at most `SAMPLES_MAX` of them: rows behind that
are without.
Not here: series (`amqpd/management/figures/samples.py`), what has some (`amqpd/management/figures/sampling.py`).

Source: https://www.rabbitmq.com/docs/http-api-reference ("Detailed statistics"); rabbit_mgmt_util.erl (range) and
rabbit_mgmt_stats.erl of deps/rabbitmq_management; as observed of RabbitMQ 3.10.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Depends, Query, Request

from amqpd.management.figures.samples import SampleRange, Series, range_back
from amqpd_admin.answers import bad_request

Row = dict[str, Any]

# Some 40 bytes each. As many as 500 queues have when the last minutes are asked for.
SAMPLES_MAX = 100_000
LENGTHS = ("messages", "messages_ready", "messages_unacknowledged")
MESSAGE_RATES = ("publish", "deliver_get", "redeliver", "ack")
DATA_RATES = ("recv_oct", "send_oct")
RETENTION = {"global": [600, 3_600, 28_800, 86_400], "basic": [600, 3_600], "detailed": []}
"""how far samples go back, as RabbitMQ says it of its defaults; of details, such as a queue's publishers, there are
none"""

_WHOLE = re.compile(r"[+-]?[0-9]{1,15}")
Seconds = Annotated[str | None, Query(json_schema_extra={"type": "integer", "minimum": 1})]


class SamplesAsked:
    """The samples that one request asks for, and how many more its answer may have."""

    def __init__(self, now_ms: int, pairs: dict[str, tuple[str | None, str | None]]) -> None:
        """Raises Refusal."""
        self._now_ms = now_ms
        self._pairs: dict[str, tuple[int, int]] = {}
        self.left = SAMPLES_MAX
        for name, (age, incr) in pairs.items():
            if not (age and incr and _WHOLE.fullmatch(age) and _WHOLE.fullmatch(incr)):
                continue
            if range_back(now_ms, int(age), int(incr)) is None:
                raise bad_request(f"Invalid range parameters: age {int(age)}, incr {int(incr)}")
            self._pairs[name] = int(age), int(incr)

    def __contains__(self, name: str) -> bool:
        return name in self._pairs

    def range_of(self, name: str, *, ahead: bool = False) -> SampleRange | None:
        """None: none of these are wanted. `ahead`: see `range_back`."""
        pair = self._pairs.get(name)
        return None if pair is None else range_back(self._now_ms, *pair, ahead=ahead)

    def add(self, row: Row, names: Iterable[str], series: Series, wanted: SampleRange | None) -> None:
        """To the details of these fields of the row; details that are not there yet get a rate, too."""
        found = [] if wanted is None else series.within(wanted)
        for name in names:
            details = row.setdefault(f"{name}_details", {"rate": round(series.rate(name), 1)})
            self.left -= len(found)
            if wanted is None or self.left < 0:
                continue
            place = series.names.index(name)
            values = [sample.values[place] for sample in found]
            details["samples"] = [
                {"sample": value, "timestamp": sample.at_ms} for sample, value in zip(found, values, strict=True)
            ]
            if len(found) > 1:
                seconds = (found[0].at_ms - found[-1].at_ms) / 1000
                details["avg_rate"] = (values[0] - values[-1]) / seconds
                details["avg"] = sum(values) / len(values)


async def _asked(
    request: Request,
    lengths_age: Seconds = None,
    lengths_incr: Seconds = None,
    msg_rates_age: Seconds = None,
    msg_rates_incr: Seconds = None,
    data_rates_age: Seconds = None,
    data_rates_incr: Seconds = None,
    node_stats_age: Seconds = None,
    node_stats_incr: Seconds = None,
) -> SamplesAsked:
    pairs = {
        "lengths": (lengths_age, lengths_incr),
        "msg_rates": (msg_rates_age, msg_rates_incr),
        "data_rates": (data_rates_age, data_rates_incr),
        "node_stats": (node_stats_age, node_stats_incr),
    }
    return SamplesAsked(request.app.state.parts.samples.now_ms, pairs)


Asked = Annotated[SamplesAsked, Depends(_asked)]
CHECKED = [Depends(_asked)]
"""of routes whose answers have no samples: what is no range is refused all the same"""


def add_to_queue(row: Row, series: Series | None, asked: SamplesAsked) -> None:
    """Of a queue, or of all of a virtual host. One to which nothing came yet has no `message_stats`."""
    if series is None:
        return
    if "lengths" in asked:
        asked.add(row, LENGTHS, series, asked.range_of("lengths", ahead=True))
    if "msg_rates" in asked and "message_stats" in row:
        asked.add(row["message_stats"], MESSAGE_RATES, series, asked.range_of("msg_rates"))
