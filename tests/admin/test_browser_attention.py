"""What is wrong, on the pages: the strip of alarms above each of them, and its end; what needs attention, first on
the overview, whose cause is one click away; states that are amber."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.admin.browsing import Visit, expect
from tests.admin.conftest import Api


@pytest.fixture
def blocked(api: Api):
    """An operator's alarm, which blocks a client that publishes."""
    api.do("POST", "/amqpd/control/alarm set", {"name": "maintenance"}, status=200)
    client = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.broker.port))
    client.channel().basic_publish("", "nowhere", b"")
    yield
    api.do("POST", "/amqpd/control/alarm clear", {"name": "maintenance"}, status=200)
    client.close()


def test_an_alarm_is_above_each_page_and_is_cleared_there(browser: Any, api: Api, blocked: None):
    visit = Visit(browser, api, timezone_id="Asia/Tokyo", locale="en-US")
    visit.log_in()
    page, strip = visit.page, visit.page.locator(".alarms")
    expect(strip).to_contain_text("The maintenance alarm is on.")
    [alarm] = api.get("/amqpd/alarms")
    local = page.evaluate("ms => new Date(ms).toLocaleString('en-US', {timeZone: 'Asia/Tokyo'})", alarm["since_ms"])
    expect(strip).to_contain_text(f"since {local} (less than a minute): an operator has set it.")
    expect(strip).to_contain_text("1 connection that publishes is blocked; consumers go on.")
    expect(page.locator("main .badges").first).not_to_contain_text("well")
    expect(page.locator("main .needs li").first).to_contain_text(
        "The maintenance alarm is on: an operator has set it"
    )
    for address in ("queues", "users", "log", "no-such-page"):
        page.goto(f"{api.url}/#/{address}")
        expect(strip).to_contain_text("The maintenance alarm is on.")
    visit.press("Clear", ".alarms")
    visit.send("Clear the alarm")
    expect(strip).to_be_hidden()
    assert api.get("/amqpd/alarms") == []
    visit.context.close()
    assert visit.errors == []


def test_who_does_not_administer_sees_the_alarm_and_has_no_button(browser: Any, api: Api, blocked: None):
    visit = Visit(browser, api)
    visit.log_in("clerk")
    strip = visit.page.locator(".alarms")
    expect(strip).to_contain_text("Who publishes is blocked; consumers go on.")
    expect(strip.get_by_role("button")).to_have_count(0)
    visit.context.close()
    assert visit.errors == []


def need(queue: str, says: str) -> dict[str, Any]:
    subject = {"node": "", "vhost": "/", "name": queue}
    link = {"link": f"#/queues/%2F/{queue}", "since_ms": None, "clearable": False}
    return {"severity": "warn", "kind": "no_consumers", "subject": subject, "says": says, **link}


def test_what_needs_attention_is_a_link_that_stays_while_its_figures_change(visit: Visit, api: Api):
    page, found = visit.page, [[need("mine-waits", "1 message waits")]]
    api.do("PUT", "/queues/%2F/mine-waits", {}, status=201)
    page.route("**/api/amqpd/attention", lambda route: route.fulfill(json={"needs": found[-1]}))
    link = page.locator(".needs a")
    # What was there before the page's next question stays until then: as a list, since one that names a single
    # link fails at once where there are two.
    expect(link).to_have_text(["1 message waits."], timeout=30_000)
    link.evaluate("node => node.focus()")
    found.append([need("mine-first", "a second queue"), need("mine-waits", "2 messages wait")])
    expect(link.last).to_have_text("2 messages wait.")
    expect(page.locator("main .badges").first).not_to_contain_text("well")
    link.last.click()
    expect(page.locator("h1")).to_have_text("mine-waits")
    found.append([])
    visit.go("")
    expect(page.locator("main")).to_contain_text("Nothing: no alarm is on, and no queue waits for somebody.")
    expect(page.locator("main .badges").first).to_have_text("all is well")
    page.unroute_all(behavior="wait")
    api.do("DELETE", "/queues/%2F/mine-waits", status=204)


def test_a_queue_that_nobody_consumes_is_amber(visit: Visit, api: Api):
    page = visit.page
    api.do("PUT", "/queues/%2F/mine-amber", {}, status=201)
    visit.go("queues?name=mine-amber")
    expect(page.locator("tbody .badge.good")).to_have_text("running")
    sent = {"routing_key": "mine-amber", "payload": "x", "payload_encoding": "string", "properties": {}}
    api.do("POST", "/exchanges/%2F/amq.default/publish", sent, status=200)
    expect(page.locator("tbody .badge.warn")).to_have_text("no consumers")
    # A phone has no column of states: a mark before the name says it.
    mark = page.get_by_role("img", name="no consumers")
    expect(mark).to_be_hidden()
    page.set_viewport_size({"width": 390, "height": 844})
    expect(mark).to_be_visible()
    page.set_viewport_size({"width": 1280, "height": 800})
    visit.go("queues/%2F/mine-amber")
    expect(page.locator(".page-head .badge.warn")).to_have_text("no consumers")
    # Somebody gets one and puts it back: for ten seconds nothing is said, and nothing is green.
    got = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    api.do("POST", "/queues/%2F/mine-amber/get", got, status=200)
    expect(page.locator(".page-head .badge").first).to_have_text("running")
    expect(page.locator(".page-head .badge.good")).to_have_count(0)
    api.do("DELETE", "/queues/%2F/mine-amber", status=204)


@pytest.mark.slow
def test_the_cause_of_each_part_of_an_incident_is_one_click_from_the_overview(browser: Any, api: Api):
    """What `scripts/incident.py` stages: every sentence, and what stands on the page behind it."""
    script = Path(__file__).resolve().parents[2] / "scripts" / "incident.py"
    amqp = f"amqp://guest:guest@127.0.0.1:{api.broker.port}"
    staged = subprocess.Popen([sys.executable, str(script), amqp, api.url])
    visit = Visit(browser, api)
    try:
        visit.log_in()
        page = visit.page
        for begins, there, within in (
            ("The incident alarm is on", "blocked", "main"),
            ("in queue 'incident.orders'", "nobody consumes.", ".why"),
            ("40 messages wait in queue 'incident.mail'", "its prefetch allows (10 of 10)", ".why"),
            ("Queue 'incident.small' is full", "were refused: the queue was full", ".why"),
            ("dead letters came to queue 'incident.dead'", "nobody consumes.", ".why"),
            ("messages to exchange 'incident.shop' reached no queue", "incident.shop", "h1"),
            ("1 connection is blocked", "blocked", "tbody"),
        ):
            visit.go("")
            link = page.locator(".needs a").filter(has_text=begins)
            expect(link).to_be_visible(timeout=40_000)
            link.click()
            expect(page.locator(within).first).to_contain_text(there)
        assert visit.errors == []
    finally:
        visit.context.close()
        staged.send_signal(signal.SIGINT)
        assert staged.wait(60) == 0
