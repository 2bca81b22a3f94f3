"""Charts begin with the broker's samples, of the span that is chosen: a page that is loaded again shows what was.

Not verified: the samples themselves (`test_samples.py`).
"""

from __future__ import annotations

import json
import re
import time
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.admin.browsing import Visit, expect
from tests.admin.conftest import Api
from tests.harness.slow import slow

LEVELS = ("messages_ready", "messages_unacknowledged")
RATES = ("publish", "deliver_get", "ack")


class Past:
    """In front of the API, whose clock is another one: its answers to one path, with samples of a whole span in place
    of the few that a young broker has. The nth value before now is `100 - n`; counters grow by 10 a second."""

    def __init__(self, page: Any, path: str, ahead_ms: int = 0) -> None:
        self.asked: list[dict[str, list[str]]] = []
        self._ahead_ms = ahead_ms
        self._path = path
        page.route(re.compile("/api/"), self._answer)

    def _answer(self, route: Any) -> None:
        answer, address = route.fetch(), urlsplit(route.request.url)
        headers = {**answer.headers, "date": _date(time.time() + self._ahead_ms / 1000)}
        if address.path != self._path:
            route.fulfill(response=answer, headers=headers)
            return
        asked, found = parse_qs(address.query), answer.json()
        self.asked.append(asked)
        if "lengths_age" in asked:
            self._fill(found, int(asked["lengths_age"][0]), int(asked["lengths_incr"][0]))
        route.fulfill(response=answer, body=json.dumps(found), headers=headers)

    def _fill(self, found: dict[str, Any], age_s: int, incr_s: int) -> None:
        now_ms = round(time.time() * 1000) + self._ahead_ms
        newest_ms, count = now_ms - now_ms % (incr_s * 1000), age_s // incr_s + 1
        times = [newest_ms - each * incr_s * 1000 for each in range(count)]
        lengths = found.get("queue_totals", found)
        for name in LEVELS:
            lengths[f"{name}_details"] = {
                "rate": 0,
                "samples": [{"sample": 100 - each, "timestamp": at} for each, at in enumerate(times)],
            }
        stats = found.setdefault("message_stats", {})
        for name in RATES:
            stats[name] = 0
            stats[f"{name}_details"] = {
                "rate": 10,
                "samples": [{"sample": (at - times[-1]) // 100, "timestamp": at} for at in times],
            }


def _date(at_s: float) -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(at_s))


def points(visit: Visit, chart: int, line: int) -> list[tuple[float, float]]:
    """Of one line, from the left, in pixels."""
    path = visit.page.locator(".chart").nth(chart).locator(f"path.line-{line}").get_attribute("d") or ""
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([-0-9.]+) ([-0-9.]+)", path)]


def drawn(visit: Visit, chart: int, at_least: int) -> list[tuple[float, float]]:
    """When it has this number of them."""
    expect(visit.page.locator(".chart").nth(chart).locator("path.line-1")).to_have_attribute(
        "d", re.compile(r"(L[^L]*){" + str(at_least) + "}")
    )
    return points(visit, chart, 1)


def shown_again(visit: Visit) -> None:
    visit.page.reload()
    expect(visit.page.locator("article.page:not([aria-busy])")).to_be_visible()


def test_a_page_that_is_loaded_again_shows_what_was(visit: Visit):
    past = Past(visit.page, "/api/overview")
    shown_again(visit)
    lengths, rates = drawn(visit, 0, 60), drawn(visit, 1, 59)
    assert lengths == sorted(lengths), "the oldest is at the left"
    width = lengths[-1][0] - lengths[0][0]
    assert width > 300
    assert lengths[0][1] > lengths[59][1] + 20, "it grew"
    assert len({y for _, y in rates[1:-2]}) == 1, "the same in each second"
    assert past.asked[-1] == {
        "lengths_age": ["600"], "lengths_incr": ["10"], "msg_rates_age": ["600"], "msg_rates_incr": ["10"],
    }  # fmt: skip


def test_how_far_back_is_chosen_and_kept(visit: Visit, api: Api):
    api.do("PUT", "/queues/%2F/sampled", {}, status=201)
    past = Past(visit.page, "/api/queues/%2F/sampled")
    visit.go("queues/%2F/sampled")
    drawn(visit, 0, 60)
    for name, age, incr, count in (
        ("1 day", "86400", "1800", 49), ("1 min", "60", "5", 13), ("1 h", "3600", "60", 61),
    ):  # fmt: skip
        visit.press(name)
        expect(visit.page.get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")
        drawn(visit, 0, count - 1)
        assert (past.asked[-1]["lengths_age"], past.asked[-1]["lengths_incr"]) == ([age], [incr])
    expect(visit.page.locator(".chart").first).to_contain_text("last 1 hour")
    shown_again(visit)
    expect(visit.page.get_by_role("button", name="1 h")).to_have_attribute("aria-pressed", "true")
    assert past.asked[-1]["lengths_age"] == ["3600"]
    api.do("DELETE", "/queues/%2F/sampled", status=204)


@pytest.mark.parametrize("ahead_ms", [-7_200_000, slow(7_200_000)])
def test_the_broker_s_clock_may_be_another_one(visit: Visit, ahead_ms: int):
    Past(visit.page, "/api/overview", ahead_ms)
    shown_again(visit)
    # The first of a line is written twice.
    places = sorted({x for x, _ in drawn(visit, 0, 60)})
    # Of ten minutes 60 steps, and what the page has seen itself at the right edge.
    steps = [after - before for before, after in pairwise(places[:59])]
    assert max(steps) - min(steps) < 0.3
    assert places[-1] - places[58] < 3 * steps[0]


def test_who_does_not_monitor_sees_what_the_page_saw(browser: Any, api: Api):
    visit = Visit(browser, api)
    past = Past(visit.page, "/api/overview")
    visit.log_in("clerk")
    expect(visit.page.locator("article.page:not([aria-busy])")).to_be_visible()
    expect(visit.page.locator(".chart").first).to_contain_text("last 5 min")
    expect(visit.page.get_by_role("button", name="1 day")).to_have_count(0)
    assert past.asked[-1] == {}
    visit.context.close()
    assert visit.errors == []
