"""Lists in a real browser, as somebody reads them at an incident: the largest first, only what waits, one line a row,
who a client is and how fast it sends; the virtual host that was chosen, on the next page too; and nothing jumps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pika
import pytest

from tests.admin.browsing import Visit, expect
from tests.admin.conftest import Api
from tests.harness.slow import slow

FILLED = {"lists-a": 1, "lists-b": 30, "lists-c": 200}
EMPTY, CONSUMED = "lists-empty", "lists-consumed"


@pytest.fixture(scope="module")
def filled(api: Api) -> Iterator[Any]:
    client = pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1", api.broker.port, heartbeat=0, client_properties={"connection_name": "till 7"}
        )
    )
    channel = client.channel()
    for name, count in {**FILLED, EMPTY: 0, CONSUMED: 20}.items():
        channel.queue_declare(name)
        for _ in range(count):
            channel.basic_publish("", name, b"1")
    channel.basic_qos(prefetch_count=10)
    channel.basic_consume(CONSUMED, lambda *_: None)
    client.process_data_events(0.1)
    yield client
    for name in (*FILLED, EMPTY, CONSUMED):
        channel.queue_delete(name)
    client.close()


def names(page: Any) -> list[str]:
    return [text.split(" ")[0] for text in page.locator("tbody tr td.name").all_inner_texts()]


def test_numbers_begin_with_the_largest_and_only_what_waits_is_left(visit: Visit, filled: Any):
    page = visit.page
    visit.go("queues?name=lists-")
    rows = page.locator("tbody tr:not([aria-hidden])")
    expect(rows).to_have_count(5)
    assert names(page) == ["lists-a", "lists-b", "lists-c", "lists-consumed", "lists-empty"]
    page.get_by_role("button", name="Total").click()
    expect(page.locator("th", has_text="Total")).to_have_attribute("aria-sort", "descending")
    expect(rows.first).to_contain_text("lists-c")
    assert names(page) == ["lists-c", "lists-b", "lists-consumed", "lists-a", "lists-empty"]
    page.get_by_role("button", name="Has backlog").click()
    expect(rows).to_have_count(4)
    page.get_by_role("button", name="No consumers").click()
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Oldest").click()
    expect(page.locator("th", has_text="Oldest")).to_have_attribute("aria-sort", "descending")
    expect(rows).to_have_count(3)
    shared = page.url
    page.goto("about:blank")
    page.goto(shared)
    expect(rows).to_have_count(3)
    expect(page.get_by_role("button", name="Has backlog")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="No consumers").click()
    expect(rows).to_have_count(4)


def test_what_is_searched_for_may_be_a_regular_expression(visit: Visit, filled: Any):
    page = visit.page
    visit.go("queues")
    search, rows = page.get_by_role("searchbox"), page.locator("tbody tr:not([aria-hidden])")
    search.fill("^LISTS-[ab]$")
    expect(page.locator("main")).to_contain_text("No queues have this in their name")
    page.get_by_role("button", name="Regular expression").click()
    expect(rows).to_have_count(2)
    search.fill("(")
    expect(page.locator("main")).to_contain_text("This is no regular expression")
    expect(page.locator(".trouble")).to_be_hidden()
    visit.press("Show all")
    expect(page.get_by_role("button", name="Regular expression")).to_have_attribute("aria-pressed", "false")
    expect(rows).not_to_have_count(0)
    # The refusal, which the browser itself reports.
    assert all("400" in error for error in visit.errors)
    visit.errors.clear()


def test_a_row_is_one_line_and_a_screen_has_twenty(visit: Visit, api: Api, filled: Any):
    long = "lists-" + "very-long-" * 20
    api.do("PUT", f"/queues/%2F/{long}", {}, status=201)
    visit.page.set_viewport_size({"width": 1280, "height": 800})
    visit.go("queues?name=lists-")
    expect(visit.page.locator("tbody tr:not([aria-hidden])")).to_have_count(6)
    heights = visit.page.locator("tbody tr").evaluate_all(
        "rows => rows.map((row) => row.getBoundingClientRect().height)"
    )
    assert max(heights) <= 34, "800 pixels have 20 of them below the head"
    visit.page.goto("about:blank")
    api.do("DELETE", f"/queues/%2F/{long}", status=204)


def test_a_client_is_known_by_its_name_and_by_how_fast_it_sends(visit: Visit, api: Api, filled: Any):
    page = visit.page
    # A rate is that of the last seconds: what the broker says of one that is at work now.
    at_work = {"rate": 2048.0}
    page.route(
        "**/api/connections?*",
        lambda route: route.fulfill(json=with_rates(route.fetch().json(), recv_oct_details=at_work)),
    )
    visit.go("connections?name=till+7")
    row = page.locator("tbody tr:not([aria-hidden])")
    expect(row).to_have_count(1)
    expect(row.locator("td.name a")).to_have_text("till 7")
    expect(row).not_to_contain_text("->")
    expect(row).to_contain_text("2.0 KiB/s")
    page.unroute_all(behavior="wait")
    row.locator("td.name a").click()
    expect(page.locator("h1")).not_to_contain_text("->")
    expect(page.locator(".page-head .badges")).to_contain_text("till 7")
    visit.go("channels?name=till+7")
    expect(row.locator("td.name a")).to_have_text("till 7")
    visit.go(f"queues/%2F/{CONSUMED}")
    consumer = page.get_by_role("region", name="Consumers").locator("tbody tr")
    expect(consumer.locator("td.name a")).to_have_text("till 7")
    expect(consumer.locator("td.number").first).to_have_text("10")
    expect(consumer.locator(".badge")).to_have_text("at prefetch")
    above = page.evaluate("[...document.querySelectorAll('main h2')].map((each) => each.textContent)")
    assert above[:3] == ["Why", "Consumers", "Messages"]


def with_rates(found: dict[str, Any], **rates: object) -> dict[str, Any]:
    return {**found, "items": [{**each, **rates} for each in found["items"]]}


def test_the_virtual_host_that_was_chosen_is_that_of_the_next_page(visit: Visit, api: Api, filled: Any):
    page, choice = visit.page, visit.page.get_by_label("Virtual host")
    visit.go("queues")
    choice.select_option("closed")
    expect(page.locator("main")).to_contain_text("No queues yet")
    page.get_by_role("navigation").get_by_role("link", name="Exchanges").click()
    expect(choice).to_have_value("closed")
    expect(page).to_have_url(re.compile("vhost=closed"))
    visit.go("queues?name=lists-")
    expect(choice).to_have_value("")
    expect(page.locator("tbody tr:not([aria-hidden])")).to_have_count(5)
    page.get_by_role("navigation").get_by_role("link", name="Exchanges").click()
    choice.select_option("")
    page.get_by_role("navigation").get_by_role("link", name="Queues").click()
    expect(page.locator("tbody tr:not([aria-hidden])")).not_to_have_count(0)
    expect(choice).to_have_value("")


PLACES = """() => [...document.querySelectorAll(
  "main :is(h1, h2, th, td, dt, section, figure, canvas, svg, .tile, .bar > *, .legend, .why, .badges)"
)].filter((each) => !each.closest("td *")).map((each) => {
  const { left, top, width, height } = each.getBoundingClientRect();
  const said = each.matches("h1, h2, th, dt") ? each.textContent : each.className.baseVal ?? each.className;
  return [`${each.tagName} ${said}`, ...[left, top + window.scrollY, width, height].map(Math.round)];
})"""
"""Of everything that stands on a page: what it is, and where."""

MORE = 1_234_567
FIGURES = re.compile(
    r"(message|consumer_count|consumers$|channels$|memory|rate$|sample$|oldest_message_age_s|consumer_capacity)"
)
SECONDS_MS = 2_500
"""in which a page asks once more"""


class Grown:
    """The first answer to each question as it is; then all figures have seven digits."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def __call__(self, route: Any) -> None:
        path = route.request.url.partition("?")[0]
        self.asked[path] += 1
        answer = route.fetch()
        if self.asked[path] > 1 and answer.ok and "json" in answer.headers["content-type"]:
            route.fulfill(json=self._grown("", answer.json()))
        else:
            route.fulfill(response=answer)

    def _grown(self, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {each: self._grown(each, below) for each, below in value.items()}
        if isinstance(value, list):
            return [self._grown(name, each) for each in value]
        if name == "why":
            return re.sub(r"\d[\d,]*", lambda found: f"{int(found[0].replace(',', '')) + MORE:,}", value)
        if name == "connected_at":
            return value - MORE
        is_figure = FIGURES.match(name) and isinstance(value, int | float) and not isinstance(value, bool)
        return value + MORE if is_figure else value


@pytest.mark.parametrize("width", [1280, slow(390)])
def test_nothing_moves_when_figures_change(browser: Any, api: Api, filled: Any, width: int):
    """All figures of a page grow by six digits, those in sentences too: everything stays where it was."""
    visit = Visit(browser, api, viewport={"width": width, "height": 800})
    page, moved, still = visit.page, {}, set()
    visit.log_in()
    page.clock.install()
    for address in (
        *("queues?name=lists-", "connections", "channels", "exchanges", "consumers"),
        *(f"queues/%2F/{CONSUMED}", "queues/%2F/lists-c"),
    ):
        page.route("**/api/**", Grown())
        visit.go(address)
        listed = f"/api/{address.partition('?')[0]}"
        before, said = page.evaluate(PLACES), page.locator("main").inner_text()
        assert len(before) > 10
        for _ in range(2):  # what the first one brings is drawn when the second one is asked for
            with page.expect_response(lambda response, listed=listed: urlsplit(response.url).path == listed):
                page.clock.run_for(SECONDS_MS)
        after = page.evaluate(PLACES)
        if found := [each for each in after if each not in before]:
            moved[address] = found[:5]
        if page.locator("main").inner_text() == said:
            still.add(address)
        page.unroute_all(behavior="wait")
    visit.context.close()
    assert moved == {}
    # A phone shows who has connected, and no figures of it.
    assert still == ({"exchanges"} if width > 720 else {"exchanges", "connections"})
