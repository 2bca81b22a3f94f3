"""Each page in a real browser: fits its window in light, dark and on a phone, and is fit for readers of screens.
`AMQPD_TEST_SCREENSHOTS` names a directory for pictures of each, to look at them; without it none are made.

What axe finds is judged by its own word: nothing "serious" or "critical". Its rules are those of the pinned package.
In `make test`: whether each page fits a large window and a phone, and what axe finds in the large one. The dark, and
what axe finds on a phone: `make test-heavy`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pytest

from tests.admin.browsing import Axe, Visit, expect
from tests.admin.conftest import Api
from tests.harness.slow import slow

# name, width, height, colours
LIGHT, DARK, PHONE = ("light", 1280, 800, "light"), ("dark", 1280, 800, "dark"), ("phone", 390, 844, "light")


@pytest.fixture(scope="module")
def busy(api: Api) -> Iterator[None]:
    """Something to see on each page."""
    # Without heartbeats: nothing answers them while the pages are looked at.
    client = pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1", api.broker.port, heartbeat=0, client_properties={"connection_name": "shop"}
        )
    )
    channel = client.channel()
    channel.exchange_declare("shop", "topic", durable=True)
    channel.exchange_declare("shop-audit", "fanout", durable=True)
    for name in ("orders", "invoices", "mail"):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "shop", f"{name}.#")
        for at in range(30):
            channel.basic_publish("shop", f"{name}.new", b'{"number": %d}' % at)
    channel.queue_bind("orders", "shop", "returns.*")
    channel.exchange_bind("shop-audit", "shop", "#")
    channel.basic_qos(prefetch_count=10)
    channel.basic_consume("orders", lambda *_: None)
    client.process_data_events(0.1)
    definition = {"pattern": "^mail", "definition": {"max-length": 1000}, "apply-to": "queues"}
    api.do("PUT", "/policies/%2F/bounded", definition, status=201)
    api.do("PUT", "/vhosts/shop", {"description": "Everything of the web shop"}, status=201)
    api.do("PUT", "/vhost-limits/shop/max-queues", {"value": 100}, status=204)
    api.do("PUT", "/user-limits/clerk/max-connections", {"value": 5}, status=204)
    topic = {"exchange": "amq.topic", "write": "^orders", "read": ".*"}
    api.do("PUT", "/topic-permissions/%2F/clerk", topic, status=201)
    yield
    client.close()
    api.do("DELETE", "/policies/%2F/bounded", status=204)
    api.do("DELETE", "/vhosts/shop", status=204)
    api.do("DELETE", "/user-limits/clerk/max-connections", status=204)
    api.do("DELETE", "/topic-permissions/%2F/clerk", status=204)


class Shots:
    """Pictures of a page, for people; none where nobody has asked for them."""

    def __init__(self, page: Any, look: str) -> None:
        self._page, self._look = page, look
        wanted = os.environ.get("AMQPD_TEST_SCREENSHOTS")
        self._folder = Path(wanted) if wanted else None
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)

    def take(self, place: str, **more: object) -> None:
        if self._folder is not None:
            self._page.screenshot(path=self._folder / f"{self._look}-{place}.png", **more)


def places(api: Api) -> dict[str, str]:
    """Name and address of each page."""
    # Not one of another test, which may be gone by the time that its page is opened.
    [name] = [row["name"] for row in api.get("/connections") if row.get("user_provided_name") == "shop"]
    connection, channel = quote(name, safe=""), quote(f"{name} (1)", safe="")
    return {
        "overview": "", "queues": "queues", "queue": "queues/%2F/orders", "exchanges": "exchanges",
        "exchange": "exchanges/%2F/shop", "picture": "exchanges/%2F/shop?view=picture",
        "connections": "connections", "connection": f"connections/{connection}", "channels": "channels",
        "channel": f"channels/{channel}", "consumers": "consumers", "users": "users", "user": "users/clerk",
        "vhosts": "vhosts", "vhost": "vhosts/shop", "policies": "policies",
        "operator-policies": "policies?kind=operator", "limits": "limits", "user-limits": "limits?of=users",
        "definitions": "definitions", "cluster": "cluster", "log": "log", "audit": "audit",
        "not-found": "no-such-page", "no-queue": "queues/%2F/no-such-queue",
    }  # fmt: skip


def opened(visit: Visit, place: str, address: str) -> None:
    visit.page.goto(f"{visit.url}/#/{address}")
    if place.startswith("no"):
        expect(visit.page.locator("main .empty")).to_be_visible()
    else:
        expect(visit.page.locator("article.page:not([aria-busy])")).to_be_visible()


def visited(browser: Any, api: Api, look: str, width: int, height: int, colours: str) -> Visit:
    phone = {"is_mobile": True, "has_touch": True} if look == "phone" else {}
    return Visit(browser, api, viewport={"width": width, "height": height}, color_scheme=colours, **phone)


def form_of_policies(visit: Visit) -> None:
    visit.go("policies")
    visit.press("Add a policy")
    visit.fill("Pattern", "^(orders|mail)")
    expect(visit.page.locator(".preview-said")).to_have_text("It matches 2 queues now.")


@pytest.mark.parametrize(
    ("look", "width", "height", "colours", "axe_looks"),
    [(*LIGHT, True), slow(*DARK, True), (*PHONE, False), slow(*PHONE, True)],
)
def test_each_page_fits_and_axe_finds_nothing_serious(
    browser: Any, api: Api, busy: None, look, width, height, colours, axe_looks
):
    """No page is wider than the window, nothing goes wrong on it; and how it looks is in a file."""
    visit = visited(browser, api, look, width, height, colours)
    page, axe, shots = visit.page, Axe(visit.page, axe_looks), Shots(visit.page, look)
    page.goto(api.url)
    expect(page.get_by_label("User")).to_be_visible()
    shots.take("login")
    axe.look("login")
    visit.log_in()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    for place, address in places(api).items():
        opened(visit, place, address)
        # A page that is still drawn half has colours between two.
        page.wait_for_timeout(100)
        axe.look(place)
        if place == "queue":
            page.get_by_role("button", name="Get messages").click()
            expect(page.locator(".payload")).to_be_visible()
        shots.take(place, full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, place
    visit.go("queues")
    visit.press("Declare a queue")
    visit.press("Add", "dialog")
    shots.take("form")
    visit.press("Cancel", "dialog")
    form_of_policies(visit)
    shots.take("form-policy")
    axe.look("a form")
    visit.press("Cancel", "dialog")
    visit.go("queues/%2F/mail")
    visit.press("Delete")
    expect(page.locator("dialog")).to_be_visible()
    page.wait_for_timeout(100)
    shots.take("question")
    axe.look("a question")
    visit.press("Cancel", "dialog")
    if look == "phone":
        page.get_by_role("button", name="Navigation").click()
        expect(page.get_by_role("link", name="Policies")).to_be_visible()
        page.wait_for_timeout(300)
        shots.take("navigation")
    assert [error for error in visit.errors if "404" not in error] == []
    visit.context.close()
    assert axe.found == {}


def test_colours_are_chosen_and_kept(visit: Visit):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = visit.page.evaluate(ground)
    visit.page.get_by_role("button", name="Dark").click()
    dark = visit.page.evaluate(ground)
    assert re.match(r"rgb\((\d), |rgb\(1\d, ", dark)
    expect(visit.page.locator("#side svg.mark")).to_be_visible()
    assert light != dark
    visit.page.reload()
    expect(visit.page.get_by_role("heading", name="Overview")).to_be_visible()
    assert visit.page.evaluate(ground) == dark


def test_nothing_moves_for_those_who_want_it_still(browser: Any, api: Api):
    visit = Visit(browser, api, viewport={"width": 390, "height": 844}, reduced_motion="reduce")
    visit.log_in()
    side = visit.page.locator("#side")
    expect(side).to_have_css("transition-property", "none")
    visit.context.close()
