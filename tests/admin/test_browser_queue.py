"""A queue's page in a real browser at an incident: what is in it and why it died, and all of it moved back in two
clicks; what stands where. Looked at, deleted and moved one by one: `test_browser_pages.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest

from tests.admin.browsing import HOSTILE, Visit, expect
from tests.admin.conftest import Api

DEAD_LETTERS = 2_000


@pytest.fixture
def channel(api: Api) -> Iterator[Any]:
    client = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", api.broker.port, client_properties={"connection_name": "till 4"})
    )
    channel = client.channel()
    channel.confirm_delivery()
    yield channel
    client.close()


def dead_letters(channel: Any, queue: str, count: int, origin: str, reason: str = "rejected") -> None:
    """As they come from another queue."""
    death = {"reason": reason, "queue": origin, "count": 1, "exchange": "", "routing-keys": [origin]}
    headers = {"x-death": [death], "x-first-death-queue": origin, "x-first-death-reason": reason}
    for number in range(count):
        channel.basic_publish("", queue, b"dead letter %d" % number, pika.BasicProperties(headers=headers))


def gone(visit: Visit, channel: Any, *queues: str) -> None:
    """When no page asks for them any more: a refusal would be a mistake of the page."""
    visit.page.goto("about:blank")
    for name in queues:
        channel.queue_delete(name)


def ready(api: Api, name: str) -> int:
    found: int = api.get(f"/queues/%2F/{name}")["messages_ready"]
    return found


def test_all_dead_letters_go_back_in_two_clicks(visit: Visit, api: Api, channel: Any):
    page, dialog = visit.page, visit.page.locator("dialog")
    for name in ("mine-dead", "mine-orders"):
        channel.queue_declare(name)
    dead_letters(channel, "mine-dead", DEAD_LETTERS, "mine-orders")
    visit.go("queues/%2F/mine-dead")
    visit.press("Move all…")
    expect(dialog).to_contain_text(f"{DEAD_LETTERS:,} messages would move.")
    expect(dialog.get_by_label("To queue")).to_have_value("mine-orders")
    visit.send("Move all")
    expect(page.locator(".notice")).to_have_text(f"{DEAD_LETTERS:,} messages moved to mine-orders.")
    assert (ready(api, "mine-dead"), ready(api, "mine-orders")) == (0, DEAD_LETTERS)
    gone(visit, channel, "mine-dead", "mine-orders")


def test_those_of_one_queue_go_back_and_what_is_wrong_is_said(visit: Visit, api: Api, channel: Any):
    dialog = visit.page.locator("dialog")
    for name in ("mine-dead", "mine-orders"):
        channel.queue_declare(name)
    dead_letters(channel, "mine-dead", 30, "mine-gone")
    dead_letters(channel, "mine-dead", 20, "mine-orders")
    visit.go("queues/%2F/mine-dead")
    visit.press("Move all…")
    expect(dialog.get_by_label("To queue")).to_have_value("")
    dialog.get_by_label("Which messages").select_option(label="those that died first in mine-gone")
    expect(dialog).to_contain_text("30 messages would move.")
    visit.press("Move all", "dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("there is no queue 'mine-gone'")
    dialog.get_by_label("Which messages").select_option(label="those that died first in mine-orders")
    expect(dialog.get_by_label("To queue")).to_have_value("mine-orders")
    expect(dialog).to_contain_text("20 messages would move.")
    visit.send("Move all")
    assert (ready(api, "mine-dead"), ready(api, "mine-orders")) == (30, 20)
    # A refusal, which the browser itself reports.
    assert all("404" in error for error in visit.errors)
    visit.errors.clear()
    gone(visit, channel, "mine-dead", "mine-orders")


def test_a_move_says_how_far_it_is_and_is_stopped(visit: Visit, api: Api, channel: Any):
    """The broker's answer is the test's: one line, and then nothing more."""
    page, dialog = visit.page, visit.page.locator("dialog")
    for name in ("mine-dead", "mine-orders"):
        channel.queue_declare(name)
    dead_letters(channel, "mine-dead", 40, "mine-orders")
    # A route of Playwright answers in one piece: the page's own `fetch` is what does not end.
    page.add_init_script(
        """
        const real = window.fetch;
        window.fetch = (address, given) => {
          if (!String(address).endsWith("/move")) return real(address, given);
          const body = new ReadableStream({
            start(pipe) {
              pipe.enqueue(new TextEncoder().encode('{"count": 25}\\n'));
              given.signal.addEventListener("abort", () => pipe.error(given.signal.reason));
            },
          });
          return Promise.resolve(new Response(body, { status: 200 }));
        };
        """
    )
    page.reload()
    visit.go("queues/%2F/mine-dead")
    visit.press("Move all…")
    visit.press("Move all", "dialog")
    expect(dialog).to_contain_text("25 of 40 moved.")
    expect(dialog.get_by_role("progressbar")).to_have_js_property("value", 25)
    visit.send("Stop")
    expect(page.locator(".notice")).to_have_text("Stopped: 25 messages moved to mine-orders, and perhaps some more.")
    gone(visit, channel, "mine-dead", "mine-orders")


def test_a_row_shows_how_the_body_begins_and_why_it_died(visit: Visit, api: Api, channel: Any):
    page = visit.page
    channel.queue_declare("mine-dead")
    dead_letters(channel, "mine-dead", 1, HOSTILE, "expired")
    channel.basic_publish("", "mine-dead", b"\xff\x00")
    visit.go("queues/%2F/mine-dead")
    visit.press("Look")
    rows = page.locator(".choice summary")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("dead letter 0")
    expect(rows.first.locator(".badge")).to_have_text(f"expired in {HOSTILE}")
    expect(rows.last).to_contain_text("ff00")
    visit.press("Choose all")
    expect(page.get_by_role("button", name="Delete 2 messages")).to_be_enabled()
    visit.press("Get messages")
    expect(page.locator(".choice")).to_have_count(0)
    expect(page.locator(".message .payload")).to_be_visible()
    expect(page.locator(".message .badge")).to_have_text(f"expired in {HOSTILE}")
    gone(visit, channel, "mine-dead")


def test_names_of_queues_and_exchanges_are_suggested(visit: Visit, api: Api, channel: Any):
    page, dialog = visit.page, visit.page.locator("dialog")
    for name in ("mine-source", "mine-target-1", "mine-target-2"):
        channel.queue_declare(name)
    channel.exchange_declare("mine-shop", "topic")
    visit.go("queues/%2F/mine-source")
    visit.press("Move all…")
    dialog.get_by_label("To queue").fill("mine-target")
    names = dialog.locator("datalist option")
    expect(names).to_have_count(2)
    assert names.evaluate_all("found => found.map((each) => each.value)") == ["mine-target-1", "mine-target-2"]
    visit.press("Cancel", "dialog")
    visit.press("Bind")
    dialog.get_by_label("From exchange").fill("mine-sh")
    expect(dialog.locator("datalist option[value=mine-shop]")).to_have_count(1)
    visit.press("Cancel", "dialog")
    visit.go("exchanges/%2F/mine-shop")
    visit.press("Bind")
    dialog.get_by_label("Its name").fill("mine-target")
    expect(dialog.locator("datalist option[value=mine-target-2]")).to_have_count(1)
    dialog.get_by_label("To", exact=True).select_option("exchange")
    dialog.get_by_label("Its name").fill("amq.t")
    expect(dialog.locator("datalist option[value='amq.topic']")).to_have_count(1)
    visit.press("Cancel", "dialog")
    assert page.locator("dialog").count() == 0
    gone(visit, channel, "mine-source", "mine-target-1", "mine-target-2")
    channel.exchange_delete("mine-shop")
