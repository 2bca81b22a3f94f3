"""The pages in a real browser: consumers, channels, limits, definitions, permissions, bindings by the thousand, what
a policy would match; and the keyboard. The others are in `test_browser.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.admin.browsing import HOSTILE, Visit, expect
from tests.admin.conftest import Api
from tests.admin.test_things import publish

BINDINGS = 10_000


@pytest.fixture
def client(api: Api):
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", api.broker.port, client_properties={"connection_name": "a client"})
    )
    yield connection
    if connection.is_open:
        connection.close()


def test_consumers_by_queue_and_tag_and_their_channel(visit: Visit, api: Api, client: Any):
    page = visit.page
    channel = client.channel()
    for name in ("mine-hunted", "mine-hidden"):
        channel.queue_declare(name)
        channel.basic_consume(name, lambda *_: None, consumer_tag=f"tag of {name}")
    channel.basic_consume("mine-hunted", lambda *_: None, consumer_tag=HOSTILE)
    visit.go("consumers?name=hunted")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("tbody")).to_contain_text(HOSTILE)
    page.get_by_role("searchbox").fill("tag of mine-hid")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("tbody a").last.click()
    expect(page.locator("article .up")).to_have_text("← Channels")
    expect(page.get_by_role("region", name="Consumers").locator("tbody tr")).to_have_count(3)
    page.get_by_role("link", name="mine-hidden").click()
    expect(page.locator("h1")).to_have_text("mine-hidden")
    expect(page.get_by_role("region", name="Consumers")).to_contain_text("tag of mine-hidden")
    client.close()
    visit.go("consumers?name=hunted")
    expect(page.locator("main")).to_contain_text("No consumers have this in them")


def test_limits_of_a_virtual_host_and_a_user(visit: Visit, api: Api):
    page = visit.page
    api.do("PUT", "/vhosts/mine-limited", {}, status=201)
    visit.go("limits")
    visit.press("Set limits")
    page.locator("dialog").get_by_label("Virtual host").select_option("mine-limited")
    visit.fill("Queues", "3")
    visit.fill("Messages in a second", "100")
    visit.send("Set limits")
    row = page.get_by_role("row").filter(has_text="mine-limited")
    expect(row).to_contain_text("max-queues = 3")
    limits = {"max-queues": 3, "publish-rate": 100}
    assert api.get("/vhost-limits/mine-limited")[0]["value"] == limits
    row.get_by_role("link").click()
    expect(page.locator("h1")).to_have_text("mine-limited")
    visit.press("Set limits")
    visit.fill("Queues", "")
    visit.fill("Connections", "0")
    visit.send("Set limits")
    expect(page.locator("main")).to_contain_text("Connections0")
    limits = {"max-connections": 0, "publish-rate": 100}
    assert api.get("/vhost-limits/mine-limited")[0]["value"] == limits
    visit.go("limits?name=mine-limited")
    visit.press("Clear")
    expect(page.locator("dialog")).to_contain_text("2 limits will be gone: max-connections, publish-rate.")
    visit.send("Clear the limits")
    expect(page.locator("main")).to_contain_text("have this in their name")
    visit.go("limits?of=users")
    visit.press("Set limits")
    visit.fill("User", "planner")
    visit.fill("Channels", "7")
    visit.send("Set limits")
    expect(page.get_by_role("row").filter(has_text="planner")).to_contain_text("max-channels = 7")
    visit.press("Clear")
    visit.send("Clear the limits")
    assert api.get("/user-limits/planner") == []
    api.do("DELETE", "/vhosts/mine-limited", status=204)


def test_a_virtual_host_changed_protected_and_deleted(visit: Visit, api: Api):
    page = visit.page
    visit.go("vhosts")
    visit.press("Add a virtual host")
    visit.fill("Name", HOSTILE)
    visit.send("Add")
    expect(page.locator("h1")).to_have_text(HOSTILE)
    visit.press("Change")
    visit.fill("Description", "For tests")
    visit.fill("Tags", "one, two")
    visit.send("Change")
    expect(page.locator("main")).to_contain_text("one, two")
    visit.press("Protect from deletion")
    expect(page.locator(".badges")).to_contain_text("protected from deletion")
    expect(page.get_by_role("button", name="Delete")).to_be_disabled()
    visit.press("Allow deletion")
    visit.press("Start tracing")
    expect(page.locator(".badges")).to_contain_text("tracing")
    visit.press("Stop tracing")
    visit.press("Set permissions")
    visit.fill("User", "clerk")
    visit.fill("Configure", "")
    visit.send("Set permissions")
    row = page.get_by_role("region", name="Permissions", exact=True).get_by_role("row").filter(has_text="clerk")
    expect(row).to_contain_text("nothing")
    row.get_by_role("button", name="Clear").click()
    visit.send("Clear")
    expect(row).to_have_count(0)
    visit.press("Delete")
    expect(page.locator("dialog")).to_contain_text("0 queues with 0 messages will be destroyed")
    visit.send("Delete the virtual host")
    expect(page.get_by_role("heading", name="Virtual hosts")).to_be_visible()
    assert HOSTILE not in [each["name"] for each in api.get("/vhosts")]


def test_what_a_user_may_do_and_topic_permissions(visit: Visit, api: Api):
    page = visit.page
    api.do("PUT", "/users/asked", {"password": "asked", "tags": ""}, status=201)
    permissions = {"configure": "", "write": "^amq\\.topic$", "read": "^mine"}
    api.do("PUT", "/permissions/%2F/asked", permissions, status=201)
    visit.go("users/asked")
    form, answer = page.locator("form.ask"), page.locator(".answer")
    form.get_by_label("Name").fill("mine-or-not")
    form.get_by_label("May it").select_option("read queue")
    form.get_by_role("button", name="Ask").click()
    expect(answer).to_contain_text("Yes")
    form.get_by_label("Name").fill("theirs")
    page.keyboard.press("Enter")
    expect(answer).to_contain_text("read access to queue 'theirs' in vhost '/' refused for user 'asked'")
    form.get_by_label("In virtual host").select_option("closed")
    form.get_by_role("button", name="Ask").click()
    expect(answer).to_contain_text("no permissions in vhost 'closed'")
    visit.press("Set topic permissions")
    visit.fill("Write", "^orders\\.")
    visit.send("Set topic permissions")
    region = page.get_by_role("region", name="Topic permissions")
    expect(region).to_contain_text("amq.topic")
    form.get_by_label("In virtual host").select_option("/")
    form.get_by_label("May it").select_option("write exchange")
    form.get_by_label("Name").fill("amq.topic")
    for key, said in (("orders.new", "Yes"), ("mail.new", "No")):
        form.get_by_label("Routing key").fill(key)
        form.get_by_role("button", name="Ask").click()
        expect(answer).to_contain_text(said)
    region.get_by_role("button", name="Clear").click()
    expect(page.locator("dialog")).to_contain_text("may use all routing keys")
    visit.send("Clear")
    expect(region.locator("tbody tr")).to_have_count(0)
    api.do("DELETE", "/users/asked", status=204)


def test_definitions_are_downloaded_compared_and_taken_in(visit: Visit, api: Api, tmp_path: Path):
    page = visit.page
    api.do("PUT", "/queues/%2F/mine-defined", {"arguments": {"x-max-length": 2**53 + 1}}, status=201)
    visit.go("definitions")
    with page.expect_download() as caught:
        visit.press("Download the definitions")
    saved = tmp_path / "saved.json"
    caught.value.save_as(saved)
    document = json.loads(saved.read_text())
    assert caught.value.suggested_filename.startswith("amqpd-definitions-")
    arguments = {each["name"]: each["arguments"] for each in document["queues"]}["mine-defined"]
    assert arguments == {"x-max-length": 2**53 + 1}, "not rounded as scripts round numbers"
    page.get_by_label("File", exact=True).set_input_files(saved)
    visit.press("Compare and upload")
    expect(page.locator("dialog")).to_contain_text("Nothing would change")
    visit.press("Close", "dialog")
    new = {"name": HOSTILE, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    other = {**new, "name": "mine-defined", "arguments": {"x-max-length": 3}}
    bound = {
        "source": "amq.topic", "vhost": "/", "destination": HOSTILE, "destination_type": "queue",
        "routing_key": "a", "arguments": {},
    }  # fmt: skip
    wanted = tmp_path / "wanted.json"
    wanted.write_text(json.dumps({"queues": [new, other], "bindings": [bound]}))
    page.get_by_label("File", exact=True).set_input_files(wanted)
    visit.press("Compare and upload")
    dialog = page.locator("dialog")
    expect(dialog).to_contain_text("1 queue added")
    expect(dialog).to_contain_text(HOSTILE)
    expect(dialog).to_contain_text("1 differs and stays as it is")
    expect(dialog).to_contain_text("1 binding added")
    visit.send("Upload")
    assert [each["name"] for each in api.get("/queues") if each["name"] == HOSTILE] == [HOSTILE]
    wanted.write_text(json.dumps({"queues": [each for each in document["queues"] if each["name"] != "mine-defined"]}))
    page.get_by_label("File", exact=True).set_input_files(wanted)
    visit.press("Compare and upload")
    expect(dialog).to_contain_text("Nothing would change")
    page.get_by_label("Delete what the file does not name").check()
    expect(dialog).to_contain_text("2 queues deleted")
    visit.send("Upload and delete")
    left = [each["name"] for each in api.get("/queues")]
    assert HOSTILE not in left
    assert "mine-defined" not in left
    for text, said in (("not JSON", "is not JSON"), ("[]", "no definition file")):
        wanted.write_text(text)
        page.get_by_label("File", exact=True).set_input_files(wanted)
        visit.press("Compare and upload")
        expect(page.get_by_role("alert").filter(has_text=said)).to_be_visible()
    assert all("400" in error for error in visit.errors)
    visit.errors.clear()


def test_a_policy_shows_what_it_would_match(visit: Visit, api: Api):
    page = visit.page
    for name in ("mine-Upper", "mine-lower", "mine-quorum"):
        kind = {"arguments": {"x-queue-type": "quorum"}} if name == "mine-quorum" else {}
        api.do("PUT", f"/queues/%2F/{name}", kind, status=201)
    visit.go("policies")
    visit.press("Add a policy")
    said = page.locator(".preview-said")
    expect(said).to_contain_text("Write a pattern")
    for pattern, target, wanted in (
        ("^mine-(Upper|lower|quorum)$", "queues", "It matches 3 queues now."),
        ("^mine-upper$", "queues", "It matches 0 queues now."),
        ("^mine-(Upper|lower|quorum)$", "quorum_queues", "It matches 1 queue now."),
        ("^(amq\\.topic|mine-lower)$", "all", "It matches 1 queue and 1 exchange now."),
    ):
        visit.fill("Pattern", pattern)
        page.locator("dialog").get_by_label("For", exact=True).select_option(target)
        expect(said).to_have_text(wanted)
    expect(page.locator(".preview-names li")).to_have_text(["amq.topic", "mine-lower"])
    first = {"pattern": "^mine-l", "definition": {"max-length": 9}, "priority": 5, "apply-to": "queues"}
    api.do("PUT", "/policies/%2F/mine-first", first, status=201)
    visit.fill("Pattern", "^mine-(Upper|lower|quorum)$")
    page.locator("dialog").get_by_label("For", exact=True).select_option("queues")
    expect(said).to_contain_text("It matches 3 queues now, and applies to 2: mine-first wins for 1.")
    visit.fill("Priority", "6")
    expect(said).to_have_text("It matches 3 queues now.")
    api.do("DELETE", "/policies/%2F/mine-first", status=204)
    visit.fill("Pattern", "(")
    expect(said).to_contain_text("cannot be shown")
    # A refusal, which the browser itself reports.
    assert all("400" in error for error in visit.errors)
    visit.errors.clear()
    visit.press("Cancel", "dialog")
    for name in ("mine-Upper", "mine-lower", "mine-quorum"):
        api.do("DELETE", f"/queues/%2F/{name}", status=204)


@pytest.mark.slow
def test_ten_thousand_bindings_are_searched_and_drawn(visit: Visit, api: Api, client: Any):
    page = visit.page
    channel = client.channel()
    channel.exchange_declare("mine-wide", "topic")
    channel.exchange_declare("mine-behind", "fanout")
    channel.exchange_bind("mine-behind", "mine-wide", "to.behind")
    for at in range(10):
        channel.queue_declare(f"mine-end-{at}")
    ends = {"source": "mine-wide", "vhost": "/", "destination_type": "queue", "arguments": {}}
    many = [{**ends, "destination": f"mine-end-{at % 10}", "routing_key": f"key.{at:05}"} for at in range(BINDINGS)]
    api.do("POST", "/definitions", {"bindings": many}, status=204)
    visit.go("exchanges/%2F/mine-wide")
    expect(page.locator(".pager").first).to_contain_text("1 to 50 of 10,001")
    region = page.get_by_role("region", name="Bindings from it")
    page.keyboard.press("/")
    page.keyboard.type("key.0999")
    expect(region.locator("tbody tr")).to_have_count(10)
    page.get_by_role("button", name="Picture").click()
    expect(page.locator(".binding-line")).to_have_count(10)
    expect(page.locator(".picture-end.queue")).to_have_count(10)
    shared = page.url
    page.goto("about:blank")
    page.goto(shared)
    expect(page.locator(".binding-key").first).to_contain_text("key.0999")
    expect(page.get_by_role("searchbox").first).to_have_value("key.0999")
    page.get_by_role("searchbox").first.fill("to.behind")
    expect(page.locator(".picture-end.exchange")).to_have_count(1)
    page.locator(".bindings-picture a").click()
    expect(page.locator("h1")).to_have_text("mine-behind")
    expect(page.get_by_role("region", name="Bindings to it")).to_contain_text("to.behind")
    visit.go("exchanges/%2F/mine-wide")
    visit.press("Delete")
    expect(page.locator("dialog")).to_contain_text("10,001 bindings from it")
    visit.send("Delete the exchange")
    for at in range(10):
        channel.queue_delete(f"mine-end-{at}")


def test_the_keyboard_alone(visit: Visit, api: Api):
    page = visit.page
    visit.go("queues")
    page.reload()
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    opener = page.get_by_role("button", name="Declare a queue").first
    expect(opener).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("dialog").get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.press("/")
    expect(page.locator("dialog").get_by_label("Name", exact=True)).to_have_value("/")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    expect(opener).to_be_focused()
    page.get_by_role("link", name="Exchanges").press("Enter")
    expect(page.get_by_role("heading", name="Exchanges")).to_be_visible()
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_what_is_for_administrators_is_not_offered_to_others(browser: Any, api: Api):
    visit = Visit(browser, api)
    visit.log_in("clerk")
    expect(visit.page.get_by_role("heading", name="Overview")).to_be_visible()
    for name in ("Users", "Definitions"):
        expect(visit.page.get_by_role("navigation").get_by_role("link", name=name)).to_have_count(0)
    visit.go("limits")
    expect(visit.page.get_by_role("button", name="Set limits")).to_have_count(0)
    expect(visit.page.get_by_role("link", name="Users")).to_have_count(0)
    visit.go("vhosts/%2F")
    expect(visit.page.locator("main").get_by_role("button")).to_have_count(0)
    visit.go("policies?kind=operator")
    expect(visit.page.get_by_role("button", name="Add")).to_have_count(0)
    assert [each for each in visit.errors if "401" not in each and "503" not in each] == []
    visit.context.close()


def test_messages_are_browsed_deleted_and_moved_and_the_queue_says_why(visit: Visit, api: Api):
    page = visit.page
    for name in ("mine-browsed", "mine-goal"):
        api.do("PUT", f"/queues/%2F/{name}", {}, status=201)
    for number in range(25):
        publish(
            api, "amq.default", "mine-browsed", f"body {number}", message_id=f"id{number}", headers={"a": HOSTILE}
        )
    visit.go("queues/%2F/mine-browsed")
    expect(page.locator(".why")).to_contain_text("25 messages wait")
    expect(page.locator(".why")).to_contain_text("nobody consumes.")
    visit.press("Look")
    expect(page.locator(".choice")).to_have_count(20)
    visit.press("Later")
    expect(page.locator(".choice")).to_have_count(5)
    expect(page.get_by_role("button", name="Later")).to_be_disabled()
    page.get_by_label("Message id").fill("id7")
    visit.press("Look")
    expect(page.locator(".choice")).to_have_count(1)
    page.locator(".choice summary").click()
    expect(page.locator(".choice .payload")).to_have_text("body 7")
    expect(page.locator(".choice")).to_contain_text(HOSTILE)
    page.get_by_label("Choose message 8").check()
    visit.press("Move 1 message")
    visit.fill("To queue", "mine-goal")
    visit.send("Move")
    expect(page.locator("main")).to_contain_text("No such message")
    assert [row["properties"]["message_id"] for row in api.get("/amqpd/messages/%2F/mine-goal")] == ["id7"]
    page.get_by_label("Message id").fill("")
    visit.press("Look")
    for at in (1, 2):
        page.get_by_label(f"Choose message {at}", exact=True).check()
    visit.press("Delete 2 messages")
    expect(page.locator("dialog")).to_contain_text("destroyed")
    visit.send("Delete 2 messages")
    expect(page.locator(".why")).to_contain_text("22 messages wait")
    for name in ("mine-browsed", "mine-goal"):
        api.do("DELETE", f"/queues/%2F/{name}", status=204)
