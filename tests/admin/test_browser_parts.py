"""The pages when one of their files does not come: it is asked for again, and who looks is told when that does
not help."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.browsing import Visit, expect
from tests.admin.conftest import Api


@pytest.mark.parametrize("part", ["js/pages/queue.js", "js/main.js", "css/layout.css"])
def test_a_part_that_fails_twice_is_asked_for_again(browser: Any, api: Api, part: str):
    """A busy machine closed a connection on which a browser had just asked: the page stayed empty."""
    visit = Visit(browser, api)
    failures: list[str] = []

    def fail_twice(route: Any) -> None:
        failures.append(part)
        if len(failures) <= 2:
            route.abort("connectionreset")
        else:
            route.continue_()

    visit.page.route(f"**/{part}", fail_twice)
    visit.log_in()
    expect(visit.page.locator("main h1")).to_have_text("Overview")
    again = visit.page.locator("link[data-again='2']")
    expect(again).to_have_count(int(part.startswith("css")))
    if part.startswith("css"):
        # The link is there before it is asked for.
        visit.page.wait_for_function("() => document.querySelector(\"link[data-again='2']\").sheet !== null")
    assert len(failures) == 3
    visit.context.close()


def test_a_part_that_never_comes_is_told(browser: Any, api: Api):
    visit = Visit(browser, api)
    visit.page.route("**/js/shell.js", lambda route: route.abort())
    visit.page.goto(visit.url)
    expect(visit.page.locator("#app")).to_have_text(
        "A part of this page did not come from the broker. Load the page again"
    )
    visit.page.unroute("**/js/shell.js")
    visit.page.get_by_role("link", name="Load the page again").click()
    expect(visit.page.get_by_label("User")).to_be_visible()
    visit.context.close()
