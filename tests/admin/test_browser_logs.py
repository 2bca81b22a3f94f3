"""The log, the acts and the cluster, in a real browser: what comes is there without reloading."""

from __future__ import annotations

import pika
import pytest

from tests.admin.browsing import HOSTILE, Visit, expect
from tests.admin.conftest import Api


def refused_login(api: Api, user: str) -> None:
    parameters = pika.ConnectionParameters(
        "127.0.0.1", api.broker.port, credentials=pika.PlainCredentials(user, "wrong")
    )
    with pytest.raises(pika.exceptions.AMQPError):
        pika.BlockingConnection(parameters)


def test_lines_of_the_log_come_by_themselves(visit: Visit, api: Api):
    page = visit.page
    visit.go("log")
    rows = page.locator(".tail-row")
    refused_login(api, "burglar-1")
    expect(rows.filter(has_text="burglar-1").first).to_be_visible()
    search = page.get_by_role("searchbox", name="Search lines")
    page.keyboard.press("/")
    page.keyboard.type("burglar-2")
    expect(page.locator("main")).to_contain_text("No such lines")
    refused_login(api, "burglar-2")
    expect(rows.first).to_contain_text("burglar-2")
    assert "search=burglar-2" in page.url
    # Held, nothing comes; then all of it.
    search.fill("burglar")
    expect(rows.filter(has_text="burglar-1").first).to_be_visible()
    visit.press("Hold")
    before = rows.count()
    refused_login(api, "burglar-3")
    page.wait_for_timeout(2500)  # more than a turn
    assert rows.count() == before
    visit.press("Go on")
    expect(rows.filter(has_text="burglar-3").first).to_be_visible()
    page.get_by_label("Level").select_option("error")
    expect(rows).to_have_count(0)
    # A link to it shows the same.
    page.reload()
    expect(page.get_by_label("Level")).to_have_value("error")
    expect(search).to_have_value("burglar")


def test_acts_say_who_did_what(visit: Visit, api: Api):
    page = visit.page
    visit.go("audit")
    queue = f"audited {HOSTILE}"
    api.do("PUT", "/users/audited", {"password": "audited", "tags": ""}, status=201)
    rows = page.locator(".tail-row")
    expect(rows.filter(has_text="user audited").first).to_contain_text("guest at 127.0.0.1")
    client = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.broker.port))
    client.channel().queue_declare(queue)
    expect(rows.filter(has_text=queue).first).to_contain_text("queue declared")
    longest = rows.locator(".badge", has_text="connection opened").first
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        line = longest.evaluate("node => parseFloat(getComputedStyle(node).lineHeight)")
        assert longest.bounding_box()["height"] < 1.5 * line, "the name of an act is one line"
    client.close()
    refused_login(api, "burglar-4")
    expect(rows.filter(has_text="login failed").first).to_contain_text("burglar-4")
    api.do("DELETE", "/users/audited", status=204)


def test_a_broker_alone_says_what_a_cluster_is_for(visit: Visit):
    visit.go("cluster")
    expect(visit.page.locator("main")).to_contain_text("This broker is alone")


def test_who_does_not_monitor_has_no_links_to_them_and_is_told_why(browser, api: Api):
    visit = Visit(browser, api)
    visit.log_in("clerk")
    expect(visit.page.get_by_role("heading", name="Overview")).to_be_visible()
    for place in ("Log", "Audit", "Cluster"):
        expect(visit.page.get_by_role("navigation").get_by_role("link", name=place)).to_have_count(0)
    visit.page.goto(f"{visit.url}/#/log")
    expect(visit.page.locator("main")).to_contain_text("Not monitor user")
    visit.context.close()
