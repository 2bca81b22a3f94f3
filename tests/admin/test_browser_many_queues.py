"""Many queues at once on the page of queues, in a real browser: what the filter leaves is counted, asked about with
the number, and done; what was refused is said one by one; and nothing of it is there for whom it is not allowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest

from tests.admin.browsing import HOSTILE, Visit, expect
from tests.admin.conftest import Api

FILLED = {"many-a": 3, "many-B": 4, f"many-{HOSTILE}": 1}


@pytest.fixture
def channel(api: Api) -> Iterator[Any]:
    """Three queues with eight messages, and one of another name."""
    client = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.broker.port, heartbeat=0))
    channel = client.channel()
    for name, count in {**FILLED, "other-many-x": 5}.items():
        channel.queue_declare(name)
        for _ in range(count):
            channel.basic_publish("", name, b"1")
    yield channel
    for name in (*FILLED, "other-many-x"):
        channel.queue_delete(name)
    client.close()


def ready(api: Api) -> dict[str, int]:
    rows = api.get("/queues/%2F")
    return {row["name"]: row["messages_ready"] for row in rows if "many" in row["name"]}


def test_what_the_filter_leaves_is_purged_after_a_dry_run_and_a_question(visit: Visit, api: Api, channel: Any):
    page, dialog = visit.page, visit.page.locator("dialog")
    visit.go("queues")
    purge = page.get_by_role("button", name="Purge these…")
    expect(purge).to_be_disabled()
    page.get_by_role("searchbox").fill("MANY-")
    expect(page.locator("tbody tr:not([aria-hidden])")).to_have_count(4)
    page.get_by_role("searchbox").fill("MANY-b")
    purge.click()  # before the list has heard of what was written last
    expect(dialog.get_by_role("heading")).to_have_text('Purge queues with "MANY-b" in their name')
    expect(dialog).to_contain_text("It would purge 1 queue with 4 ready messages:")
    visit.press("Cancel", "dialog")
    page.get_by_role("searchbox").fill("^MANY-")
    page.get_by_role("button", name="Regular expression").click()
    expect(page.locator("tbody tr:not([aria-hidden])")).to_have_count(3)
    purge.click()
    expect(dialog.get_by_role("heading")).to_have_text("Purge queues whose name matches ^MANY-")
    expect(dialog).to_contain_text("nothing is done yet. It would purge 3 queues with 8 ready messages:")
    expect(dialog.locator("li")).to_have_count(3)
    expect(dialog.locator("li").filter(has_text="many-B")).to_contain_text("4 messages")
    expect(dialog.locator("li").filter(has_text=HOSTILE)).to_have_count(1)
    assert ready(api) == {**FILLED, "other-many-x": 5}, "a dry run does nothing"
    visit.press("Cancel", "dialog")
    expect(dialog).to_have_count(0)
    assert ready(api) == {**FILLED, "other-many-x": 5}
    purge.click()
    channel.queue_declare("many-late")
    channel.basic_publish("", "many-late", b"1")
    visit.press("Purge 3 queues", "dialog")
    expect(dialog).to_contain_text("Purged 3 queues with 8 ready messages.")
    visit.press("Close", "dialog")
    assert ready(api) == {**dict.fromkeys(FILLED, 0), "other-many-x": 5, "many-late": 1}, (
        "what was not shown is not meant"
    )
    channel.queue_delete("many-late")


def test_what_is_refused_is_said_one_by_one_and_the_others_are_deleted(visit: Visit, api: Api, channel: Any):
    page, dialog = visit.page, visit.page.locator("dialog")
    visit.go("queues?name=^MANY-&regex=1&only=unused&vhost=%2F")
    visit.press("Delete these…")
    expect(dialog.get_by_role("heading")).to_have_text(
        "Delete queues whose name matches ^MANY-, in virtual host /, without consumers"
    )
    expect(dialog.get_by_role("button", name="Delete 3 queues")).to_be_enabled()
    channel.basic_consume("many-a", lambda *_: None)
    visit.press("Delete 3 queues", "dialog")
    expect(dialog).to_contain_text(
        "Deleted 2 queues with 5 ready messages. 1 queue was not deleted, and this is why:"
    )
    expect(dialog.locator("li")).to_have_count(1)
    expect(dialog.locator("li")).to_contain_text("many-a")
    expect(dialog.locator("li")).to_contain_text("it has consumers now")
    visit.press("Close", "dialog")
    expect(page.locator("main")).to_contain_text("No queues are like this")
    expect(page.get_by_role("button", name="Delete these…")).to_be_disabled()
    assert set(ready(api)) == {"many-a", "other-many-x"}


@pytest.mark.parametrize("user", ["watcher", "planner", "clerk"])
def test_who_may_not_is_offered_nothing(browser: Any, api: Api, channel: Any, user: str):
    visit = Visit(browser, api)
    visit.log_in(user)
    expect(visit.page.get_by_role("heading", name="Overview")).to_be_visible()
    visit.go("queues?name=many-")
    expect(visit.page.locator("tbody tr:not([aria-hidden])")).not_to_have_count(0)
    expect(visit.page.get_by_role("button", name="these…")).to_have_count(0)
    refused = api("POST", "/amqpd/control/queues%20purge", {"containing": "many-"}, user=user)
    assert refused.status_code == 401
    visit.context.close()
