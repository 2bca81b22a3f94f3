"""The course of most scenarios: consumers, publishers, warm-up, window, stop, drain, check.

What comes in: jobs for one publishing worker and one consuming worker. What goes out: a `Flow` report. Rules:
1. consumers are subscribed before the first publish; 2. the publisher stops first and says how much it
published, the consumer must then receive exactly that; 3. the rate is what went all the way in the window:
the smaller of what the publisher counted (confirmed, or sent where there are no confirms) and what the
consumer received.
Not here: what the workers do (`roles/`), the topology (`topology.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.clock import now
from bench.crew import Crew
from bench.errors import BenchError
from bench.proc import Usage, usage_of
from bench.scenarios.base import Figure, Result, Setting

START_SECONDS = 0.1
STOPPED_SECONDS_MAX = 130.0
DONE_SECONDS_MAX = 200.0


@dataclass(frozen=True, slots=True)
class Flow:
    """`stopped` and `published` are the publisher's messages, `consumed` the consumer's; shares are of one
    core."""

    stopped: dict[str, Any]
    published: dict[str, Any]
    consumed: dict[str, Any]
    drain_s: float
    before: Usage | None
    after: Usage | None
    seconds: float

    def result(self, figures: list[Figure], **counts: Any) -> Result:
        windows = {"publish": self.published["window"], "consume": self.consumed["window"]}
        cpu_s = sum(window["cpu_s"] for window in windows.values())
        return Result(
            figures,
            {role: _per_second(window, "cpu_s") for role, window in windows.items()},
            self.consumed["window"]["count"] / cpu_s if cpu_s else 0.0,
            *broker_share(self.before, self.after, self.seconds),
            {
                "published": self.stopped["published"],
                "confirmed": self.stopped.get("confirmed"),
                "received": self.consumed["received"],
                "drain_s": round(self.drain_s, 3),
                **counts,
            },
        )

    def rate(self, copies: int = 1) -> float:
        """Messages per second; `copies` deliveries belong to one publish, and count as `copies` messages."""
        sent = _per_second(self.published["window"], "count") * copies
        return min(sent, _per_second(self.consumed["window"], "count"))


def run_flow(setting: Setting, publisher: dict[str, Any], consumer: dict[str, Any], *, taps: int = 1) -> Flow:
    """`publisher` and `consumer` are jobs (`role` and arguments, without the url). The consumer has `taps`
    connections, each of which must receive all messages."""
    with Crew() as crew:
        eater = crew.start(url=setting.url, **consumer)
        feeder = crew.start(url=setting.url, **publisher)
        start = now() + START_SECONDS + setting.warmup_s
        stop = start + setting.seconds
        crew.go(start, stop)
        crew.watch_until(start)
        before, began = usage_of(setting.pid), now()
        crew.watch_until(stop)
        after, ended = usage_of(setting.pid), now()
        (stopped,) = crew.expect("stopped", [feeder], STOPPED_SECONDS_MAX)
        eater.tell("total", totals=[stopped["published"]] * taps)
        (consumed,) = crew.expect("done", [eater], DONE_SECONDS_MAX)
        drained = now()
        feeder.tell("finish")
        (published,) = crew.expect("done", [feeder], DONE_SECONDS_MAX)
    flow = Flow(stopped, published, consumed, drained - ended, before, after, ended - began)
    check_counts(flow, taps)
    return flow


def check_counts(flow: Flow, taps: int) -> None:
    """Raises BenchError unless everything published was confirmed (where asked) and received."""
    published, received = flow.stopped["published"], flow.consumed["received"]
    if received != published * taps:
        raise BenchError(f"published {published}, received {received} over {taps} queues")
    if flow.stopped.get("confirmed") and flow.stopped["confirmed"] != published:
        raise BenchError(f"published {published}, confirmed {flow.stopped['confirmed']}")
    sent, came = flow.stopped.get("streams"), flow.consumed.get("streams")
    if sent is not None and came is not None:
        wrong = [stream for stream in sent if sent[stream] != came.get(stream, 0)]
        if wrong or len(came) > len(sent):
            raise BenchError(f"streams whose messages did not all come exactly once: {wrong[:10]}")
    if not published or not flow.consumed["window"]["seconds"]:
        raise BenchError("nothing was published in the measured window")


def broker_share(
    before: Usage | None, after: Usage | None, seconds: float
) -> tuple[float | None, float | None]:
    """(cores used, resident megabytes at the higher of the two moments), or None for both."""
    if before is None or after is None:
        return None, None
    rss_bytes = max(before.rss_bytes, after.rss_bytes)
    return (after.cpu_s - before.cpu_s) / seconds, rss_bytes / 1e6


def _per_second(window: dict[str, float], key: str) -> float:
    return window[key] / window["seconds"] if window["seconds"] else 0.0
