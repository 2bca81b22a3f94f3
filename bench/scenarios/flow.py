"""The course of most scenarios: consumers, publishers, warm-up, window, stop, drain, check.

What comes in: jobs for one publishing worker (or several) and one consuming worker. What goes out: a `Flow`
report. Rules: 1. consumers are subscribed before the first publish; 2. the publisher stops first and says how much it
published, the consumer must then receive exactly that; 3. the rate is what was received in the
window, or what was confirmed in it (where there are confirms) if that is less.
Not here: what the workers do (`roles/`), the topology (`topology.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.clock import now
from bench.crew import Crew
from bench.errors import BenchError
from bench.scenarios.base import Figure, Result, Setting
from bench.scenarios.cost import Look, look, per_second, result_of

START_SECONDS = 0.1
STOPPED_SECONDS_MAX = 130.0
DONE_SECONDS_MAX = 200.0


@dataclass(frozen=True, slots=True)
class Flow:
    """`stopped` and `published` are the publisher's messages (of several, their sums), `consumed` is the consumer's;
    `first` and `last` look at the machine at the ends of the window."""

    stopped: dict[str, Any]
    published: dict[str, Any]
    consumed: dict[str, Any]
    drain_s: float
    first: Look
    last: Look

    def result(self, figures: list[Figure], **counts: Any) -> Result:
        windows = {"publish": self.published["window"], "consume": self.consumed["window"]}
        checked = {
            "published": self.stopped["published"],
            "confirmed": self.stopped.get("confirmed"),
            "received": self.consumed["received"],
            "drain_s": round(self.drain_s, 3),
        }
        messages = self.consumed["window"]["count"]
        return result_of(figures, windows, messages, self.first, self.last, checked | counts)

    def rate(self, copies: int = 1) -> float:
        """Messages per second; `copies` deliveries belong to one publish, and count as `copies` messages."""
        received = per_second(self.consumed["window"], "count")
        if not self.stopped.get("confirmed"):
            # A broker may stop an unconfirmed publisher for seconds and work off what it has: what was sent
            # in the window says nothing then.
            return received
        return min(received, per_second(self.published["window"], "count") * copies)


@dataclass(frozen=True, slots=True)
class Course:
    """What one consuming worker receives from which publishing workers: jobs (`role` and arguments, without the url).
    `totals_of` says what each of the consumer's connections must receive of what each publisher has published."""

    publishers: list[dict[str, Any]]
    consumer: dict[str, Any]
    totals_of: Callable[[list[int]], list[int]] = lambda published: [sum(published)]


def run_flow(
    setting: Setting,
    publisher: dict[str, Any] | list[dict[str, Any]],
    consumer: dict[str, Any],
    *,
    totals_of: Callable[[list[int]], list[int]] = lambda published: [sum(published)],
) -> Flow:
    """The one course of these jobs; see `Course`."""
    publishers = publisher if isinstance(publisher, list) else [publisher]
    return run_flows(setting, [Course(publishers, consumer, totals_of)])[0]


def run_flows(setting: Setting, courses: list[Course]) -> list[Flow]:
    """Several courses in the same window, each with its report and its counts checked."""
    with Crew() as crew:
        eaters = [crew.start(url=setting.url, **course.consumer) for course in courses]
        groups = [[crew.start(url=setting.url, **job) for job in course.publishers] for course in courses]
        start = now() + START_SECONDS + setting.warmup_s
        stop = start + setting.seconds
        crew.go(start, stop)
        crew.watch_until(start)
        first = look(setting.pid)
        crew.watch_until(stop)
        last = look(setting.pid)
        stopped = [crew.expect("stopped", feeders, STOPPED_SECONDS_MAX) for feeders in groups]
        totals = [
            course.totals_of([each["published"] for each in reports])
            for course, reports in zip(courses, stopped, strict=True)
        ]
        for eater, total in zip(eaters, totals, strict=True):
            eater.tell("total", totals=total)
        consumed = crew.expect("done", eaters, DONE_SECONDS_MAX)
        drained = now()
        for feeder in itertools.chain(*groups):
            feeder.tell("finish")
        published = [crew.expect("done", feeders, DONE_SECONDS_MAX) for feeders in groups]
    flows = [
        Flow(together(sent), together(done), came, drained - last.at, first, last)
        for sent, done, came in zip(stopped, published, consumed, strict=True)
    ]
    for flow, total in zip(flows, totals, strict=True):
        check_counts(flow, sum(total))
    return flows


def together(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """The reports of several publishers as one: their sums, and under `streams` what each has published."""
    if len(reports) == 1:
        return reports[0]
    whole = {name: sum(each[name] for each in reports) for name in ("published", "confirmed", "confirm_frames")}
    whole["streams"] = {str(number): each["published"] for number, each in enumerate(reports)}
    windows = [each["window"] for each in reports if "window" in each]
    if windows:
        whole["window"] = {name: sum(each[name] for each in windows) for name in ("count", "cpu_s")}
        whole["window"]["seconds"] = sum(each["seconds"] for each in windows) / len(windows)
    return whole


def check_counts(flow: Flow, total: int) -> None:
    """Raises BenchError unless everything published was confirmed (where asked) and `total` were received."""
    published, received = flow.stopped["published"], flow.consumed["received"]
    if received != total:
        raise BenchError(f"published {published}, to be received {total}, received {received}")
    confirmed = flow.stopped.get("confirmed")
    if confirmed and confirmed != published:
        raise BenchError(f"published {published}, confirmed {confirmed}")
    sent, came = flow.stopped.get("streams"), flow.consumed.get("streams")
    if sent is not None and came is not None:
        wrong = [stream for stream in sent if sent[stream] != came.get(stream, 0)]
        if wrong or len(came) > len(sent):
            raise BenchError(f"streams whose messages did not all come exactly once: {wrong[:10]}")
    if not published or not flow.consumed["window"]["seconds"]:
        raise BenchError("nothing was published in the measured window")
