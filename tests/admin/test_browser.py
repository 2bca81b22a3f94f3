"""The pages in a real browser, as somebody uses them: log-in, queues, exchanges, users, virtual hosts, lists that are
live. The other pages are in `test_browser_pages.py`, how they look in `test_browser_looks.py`."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pika
import pytest

from tests.admin.browsing import HOSTILE, Visit, expect
from tests.admin.conftest import Api
from tests.harness.slow import slow_but


def test_a_wrong_password_and_the_right_one(browser: Any, api: Api):
    visit = Visit(browser, api)
    visit.log_in("guest", "wrong")
    expect(visit.page.get_by_role("alert")).to_have_text("That user and password do not log in here.")
    visit.log_in("nobody")
    expect(visit.page.get_by_role("alert")).to_contain_text("has no tag")
    visit.page.get_by_label("User").fill("guest")
    visit.page.get_by_label("Password").fill("guest")
    visit.page.keyboard.press("Enter")
    expect(visit.page.get_by_role("heading", name="Overview")).to_be_visible()
    assert visit.page.evaluate("document.cookie") == "", "scripts do not see the cookie"
    # The refusals, which the browser itself reports.
    assert all("401" in error for error in visit.errors)
    visit.page.reload()
    expect(visit.page.get_by_role("heading", name="Overview")).to_be_visible()
    visit.page.get_by_role("button", name="Log out").click()
    expect(visit.page.get_by_role("button", name="Log in")).to_be_visible()
    visit.page.reload()
    expect(visit.page.get_by_role("button", name="Log in")).to_be_visible()
    visit.context.close()


def test_an_address_is_kept_over_the_log_in(browser: Any, api: Api):
    visit = Visit(browser, api)
    visit.page.goto(f"{api.url}/#/queues?name=abc")
    visit.page.get_by_label("User").fill("guest")
    visit.page.get_by_label("Password").fill("guest")
    visit.page.get_by_role("button", name="Log in").click()
    expect(visit.page.get_by_role("heading", name="Queues")).to_be_visible()
    expect(visit.page.get_by_role("searchbox")).to_have_value("abc")
    visit.context.close()


def test_a_queue_from_its_declaration_to_its_end(visit: Visit, api: Api):
    page = visit.page
    visit.go("queues")
    visit.press("Declare a queue")
    visit.fill("Name", "mine-browsed")
    visit.press("Add", "dialog")
    page.locator("dialog .argument-name").fill("x-max-length")
    page.locator("dialog .argument-value").fill("10")
    visit.send("Declare")
    expect(page.get_by_role("heading", name="mine-browsed")).to_be_visible()
    assert api.get("/queues/%2F/mine-browsed")["arguments"] == {"x-max-length": 10}
    visit.press("Bind")
    visit.fill("From exchange", "amq.topic")
    visit.fill("Routing key", "a.#")
    visit.send("Bind")
    expect(page.get_by_role("region", name="Bindings")).to_contain_text("a.#")
    for text in ("first", "<b>second</b>"):
        visit.press("Publish")
        visit.fill("Payload", text)
        visit.send("Publish")
    tile = page.locator(".tile", has_text="Ready").locator("dd")
    expect(tile).to_have_text("2")
    page.get_by_label("How many messages").fill("5")
    visit.press("Get messages")
    expect(page.locator(".payload")).to_have_text(["first", "<b>second</b>"])
    expect(tile).to_have_text("2")
    page.get_by_label("What becomes of them").select_option("ack_requeue_false")
    page.get_by_label("How many messages").fill("1")
    visit.press("Get messages")
    expect(page.locator("dialog")).to_contain_text("1 message")
    visit.send("Take 1 message")
    expect(tile).to_have_text("1")
    visit.press("Purge")
    expect(page.locator("dialog")).to_contain_text("1 ready message will be destroyed")
    visit.send("Purge")
    expect(tile).to_have_text("0")
    visit.press("Unbind")
    visit.send("Unbind")
    expect(page.get_by_role("region", name="Bindings")).not_to_contain_text("a.#")
    visit.press("Delete")
    expect(page.locator("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    visit.press("Delete")
    expect(page.locator("dialog")).to_contain_text("destroyed with 0 messages and 0 bindings")
    visit.send("Delete the queue")
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    api.do("GET", "/queues/%2F/mine-browsed", status=404)


def test_an_exchange_with_a_binding_and_a_message(visit: Visit, api: Api):
    page = visit.page
    api.do("PUT", "/queues/%2F/mine-of-an-exchange", {}, status=201)
    visit.go("exchanges")
    visit.press("Declare an exchange")
    visit.fill("Name", "mine-exchange")
    page.locator("dialog").get_by_label("Type", exact=True).select_option("fanout")
    visit.send("Declare")
    expect(page.get_by_role("heading", name="mine-exchange")).to_be_visible()
    visit.press("Publish")
    visit.press("Publish", "dialog")
    expect(page.locator("dialog")).to_contain_text("reached no queue")
    visit.press("Cancel", "dialog")
    visit.press("Bind")
    visit.fill("Its name", "mine-of-an-exchange")
    visit.send("Bind")
    expect(page.get_by_role("region", name="Bindings from it")).to_contain_text("mine-of-an-exchange")
    visit.press("Publish")
    visit.fill("Payload", "hello")
    visit.send("Publish")
    assert api.get("/queues/%2F/mine-of-an-exchange")["messages"] == 1
    visit.press("Delete")
    expect(page.locator("dialog")).to_contain_text("1 binding from it and 0 bindings to it")
    visit.send("Delete the exchange")
    api.do("GET", "/exchanges/%2F/mine-exchange", status=404)


def test_a_user_with_tags_and_permissions(visit: Visit, api: Api):
    page = visit.page
    visit.go("users")
    visit.press("Add a user")
    visit.fill("Name", "browsed")
    visit.fill("Password", "secret")
    page.locator("dialog").get_by_label("Monitoring").check()
    visit.send("Add")
    expect(page.get_by_role("heading", name="browsed")).to_be_visible()
    assert api.get("/users/browsed")["tags"] == ["monitoring"]
    visit.press("Set permissions")
    visit.fill("Configure", "^mine")
    visit.send("Set permissions")
    expect(page.get_by_role("region", name="Permissions", exact=True)).to_contain_text("^mine")
    visit.press("Change")
    visit.fill("Read", "")
    visit.send("Set permissions")
    assert api.get("/permissions/%2F/browsed") == {
        "user": "browsed",
        "vhost": "/",
        "configure": "^mine",
        "write": ".*",
        "read": "",
    }
    visit.press("Change tags")
    page.locator("dialog").get_by_label("Monitoring").uncheck()
    page.locator("dialog").get_by_label("Management").check()
    visit.send("Set tags")
    expect(page.locator("main")).to_contain_text("management")
    visit.press("Change password")
    visit.fill("New password", "another")
    visit.send("Set password")
    assert api("POST", "/amqpd/session", {"name": "browsed", "password": "another"}, user="").status_code == 201
    visit.press("Clear")
    visit.send("Clear")
    expect(page.get_by_role("region", name="Permissions", exact=True)).not_to_contain_text("^mine")
    visit.press("Delete")
    visit.send("Delete the user")
    api.do("GET", "/users/browsed", status=404)


def test_a_virtual_host_and_a_policy(visit: Visit, api: Api):
    page = visit.page
    visit.go("vhosts")
    visit.press("Add a virtual host")
    visit.fill("Name", "browsed host")
    visit.send("Add")
    expect(page.get_by_role("heading", name="browsed host")).to_be_visible()
    api.do("PUT", "/queues/browsed%20host/orders", {}, status=201)
    visit.go("policies")
    visit.press("Add a policy")
    visit.fill("Name", "short")
    page.locator("dialog").get_by_label("Virtual host").select_option("browsed host")
    visit.fill("Pattern", "^orders")
    visit.press("Add", "dialog fieldset")
    page.locator("dialog .argument-name").fill("max-length")
    page.locator("dialog .argument-value").fill("5")
    page.locator("dialog .dialog-foot").get_by_role("button", name="Add").click()
    row = page.get_by_role("row").filter(has_text="short")
    expect(row).to_contain_text("max-length = 5")
    assert api.get("/policies/browsed%20host/short")["definition"] == {"max-length": 5}
    row.get_by_role("button", name="Delete").click()
    expect(page.locator("dialog")).to_contain_text("1 queue")
    visit.send("Delete the policy")
    visit.go("vhosts")
    page.get_by_role("row").filter(has_text="browsed host").get_by_role("button", name="Delete").click()
    expect(page.locator("dialog")).to_contain_text("1 queue with 0 messages")
    visit.send("Delete the virtual host")
    api.do("GET", "/vhosts/browsed%20host", status=404)


def test_a_connection_is_seen_and_closed(visit: Visit, api: Api):
    client = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", api.broker.port, client_properties={"connection_name": HOSTILE})
    )
    client.channel().queue_declare("mine-consumed")
    page = visit.page
    visit.go("channels")
    expect(page.get_by_role("row").filter(has_text="(1)")).to_be_visible()
    visit.go("connections")
    expect(page.get_by_role("row").filter(has_text=HOSTILE)).to_be_visible()
    page.get_by_role("row").filter(has_text=HOSTILE).get_by_role("link").click()
    expect(page.locator("main")).to_contain_text("Pika")
    visit.press("Close")
    expect(page.locator("dialog")).to_contain_text("1 channel and 0 consumers")
    visit.send("Close the connection")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="operator"):
        client.process_data_events(10)


@pytest.mark.parametrize(
    "name",
    slow_but(
        (HOSTILE, "a/b?c#d%2F"),
        (HOSTILE, "a/b?c#d%2F", "\u202egpj", " ", "\u00fc \U0001f407", "a\tb", "'\"><script>"),
    ),
)
def test_names_are_text(visit: Visit, api: Api, name: str):
    page = visit.page
    path = quote(name, safe="")
    api.do("PUT", f"/queues/%2F/{path}", {"arguments": {"x-dead-letter-exchange": name}}, status=201)
    api.do("PUT", f"/exchanges/%2F/{path}", {}, status=201)
    api.do("POST", f"/bindings/%2F/e/{path}/q/{path}", {"routing_key": name, "arguments": {name: name}}, status=201)
    visit.go("queues?name=" + quote(name, safe=""))
    link = page.locator("tbody a")
    expect(link).to_have_count(1)
    link.click()
    expect(page.locator("article .up")).to_have_text("← Queues")
    expect(page.locator("article.page:not([aria-busy])")).to_be_visible()
    unseen = name.replace("\u202e", "\\u{202e}").replace("\t", "\\u{9}")
    unseen = "\\u{20}" if unseen == " " else unseen
    assert page.locator("h1").text_content() == unseen
    expect(page.get_by_role("region", name="Bindings").locator("code").last).to_have_text(unseen)
    visit.press("Delete")
    visit.send("Delete the queue")
    api.do("GET", f"/queues/%2F/{path}", status=404)
    api.do("DELETE", f"/exchanges/%2F/{path}", status=204)
    assert page.locator("main img, main script").count() == 0
    assert page.title() != "owned"


def test_a_name_of_dots_does_not_reach_another_thing(visit: Visit, api: Api):
    """A browser takes `..` out of an address: `queues/%2F/../contents` would be the queue `contents`."""
    client = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.broker.port))
    channel = client.channel()
    channel.queue_declare("..")
    channel.queue_declare("contents")
    visit.go("queues?name=..")
    visit.page.locator("tbody a").click()
    expect(visit.page.locator("main")).to_contain_text("cannot be a part of an address")
    assert api.get("/queues/%2F/contents")["name"] == "contents"
    channel.queue_delete("..")
    client.close()


def test_search_sort_and_pages(visit: Visit, api: Api):
    page = visit.page
    for at in range(60):
        api.do("PUT", f"/queues/%2F/many-{at:02}", {}, status=201)
    visit.go("queues")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("many-")
    expect(page.locator(".pager")).to_contain_text("1 to 50 of 60")
    visit.press("Next")
    expect(page.locator(".pager")).to_contain_text("51 to 60 of 60")
    expect(page.locator("tbody tr")).to_have_count(10)
    shared = page.url
    page.goto("about:blank")
    page.goto(shared)
    expect(page.locator("tbody tr")).to_have_count(10)
    page.get_by_role("button", name="Name", exact=True).click()
    expect(page.locator("tbody tr").first).to_contain_text("many-59")
    page.get_by_role("searchbox").fill("many-1")
    expect(page.locator("tbody tr")).to_have_count(10)
    page.get_by_role("searchbox").fill("no such queue")
    expect(page.locator("main")).to_contain_text("No queues have this in their name")
    page.keyboard.press("Escape")
    expect(page.get_by_role("searchbox")).to_have_value("")
    for at in range(60):
        api.do("DELETE", f"/queues/%2F/many-{at:02}", status=204)


def test_it_is_live_while_it_is_seen_one_request_at_a_time(visit: Visit, api: Api):
    page = visit.page
    under_way, most = [0], [0]

    def began(request) -> None:
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])

    def ended(request) -> None:
        under_way[0] -= 1

    visit.go("queues?name=mine-live")
    page.on("request", began)
    page.on("requestfinished", ended)
    page.on("requestfailed", ended)
    api.do("PUT", "/queues/%2F/mine-live", {}, status=201)
    expect(page.get_by_role("link", name="mine-live")).to_be_visible()
    api.do("DELETE", "/queues/%2F/mine-live", status=204)
    expect(page.get_by_role("link", name="mine-live")).to_have_count(0)
    assert most[0] == 1
    # As a tab behind another one.
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait_for_timeout(500)
    requests: list[object] = []
    page.on("request", lambda request: requests.append(request))
    page.wait_for_timeout(4500)
    assert requests == []


def test_a_session_that_has_ended_asks_again_and_goes_on(browser: Any, api: Api):
    visit = Visit(browser, api)
    visit.log_in()
    visit.go("exchanges")
    visit.context.clear_cookies()
    expect(visit.page.get_by_role("alert")).to_contain_text("The session has ended")
    visit.page.get_by_label("User").fill("guest")
    visit.page.get_by_label("Password").fill("guest")
    visit.page.get_by_role("button", name="Log in").click()
    expect(visit.page.get_by_role("heading", name="Exchanges")).to_be_visible()
    visit.context.close()


def test_who_may_less_is_shown_less(browser: Any, api: Api):
    visit = Visit(browser, api)
    visit.log_in("clerk")
    expect(visit.page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(visit.page.get_by_role("link", name="Users")).to_have_count(0)
    visit.go("vhosts")
    expect(visit.page.get_by_role("button", name="Delete")).to_have_count(0)
    visit.go("queues")
    visit.press("Declare a queue")
    visit.fill("Name", "not-allowed")
    visit.press("Declare", "dialog")
    expect(visit.page.locator("dialog")).to_contain_text("refused for user 'clerk'")
    visit.press("Cancel", "dialog")
    assert [each for each in visit.errors if "401" not in each] == []
    visit.go("queues")
    visit.page.goto(f"{api.url}/#/users")
    expect(visit.page.locator("main")).to_contain_text("Not administrator user")
    visit.context.close()
