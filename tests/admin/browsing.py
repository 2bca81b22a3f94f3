"""A browser window for tests of the pages, and what went wrong in it.

What comes in: a broker's management API. What goes out: `Visit`, which presses and fills; Chromium itself; what axe
finds on a page. A module that imports this one is skipped where playwright is not installed; tests that want a
browser, where there is no Chromium and none can be installed.
Not here: the fixtures (`conftest.py`), the stories (`test_browser*.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.harness.programs import debian_program

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect
# As long as a page waits for anything else: the first page of a run has taken over 20 s.
WAIT_MS = 60_000
expect.set_options(timeout=WAIT_MS)

WRONG = ("serious", "critical")
"""of axe's words for what it finds"""
AXE = """async () => {
  const { passes, violations } = await window.axe.run(document, { resultTypes: ["violations"] });
  return [passes.length, violations];
}"""
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


def launched() -> Iterator[Any]:
    """A browser, for as long as the generator is open."""
    chromium = debian_program("chromium", "chromium")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


class Visit:
    """A browser window of its own, and what went wrong in it."""

    def __init__(self, browser: Any, api: Api, **more: object) -> None:
        self.context = browser.new_context(**more)
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.url = api.url
        self.errors: list[str] = []
        self.addresses: set[str] = set()
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.addresses.add("/".join(request.url.split("/")[:3])))

    def log_in(self, user: str = "guest", password: str | None = None) -> None:
        self.page.goto(self.url)
        # A page that misses a part of itself loads itself again, which is no error of the pages; one that stays empty
        # says what its scripts said.
        try:
            self.page.get_by_label("User").fill(user)
        except playwright.TimeoutError as late:
            raise AssertionError(f"no form to log in: {self.errors}, {self.page.content()}") from late
        self.errors[:] = [error for error in self.errors if "net::ERR_" not in error]
        self.page.get_by_label("Password").fill(password or user)
        self.page.get_by_role("button", name="Log in").click()

    def go(self, address: str) -> None:
        self.page.goto(f"{self.url}/#/{address}")
        expect(self.page.locator("article.page:not([aria-busy])")).to_be_visible()

    def press(self, name: str, within: str = "main") -> None:
        self.page.locator(within).get_by_role("button", name=name, exact=True).first.click()

    def fill(self, label: str, text: str) -> None:
        self.page.locator("dialog").get_by_label(label, exact=True).fill(text)

    def send(self, name: str) -> None:
        """The button of a dialog, which closes then."""
        self.press(name, "dialog")
        expect(self.page.locator("dialog")).to_have_count(0)


class Axe:
    """What it finds, by the page; nothing where it does not look."""

    def __init__(self, page: Any, looks: bool = True) -> None:
        self.found: dict[str, list[str]] = {}
        self._page = page
        self._script = ""
        if looks:
            package = pytest.importorskip("axe_playwright_python.sync_playwright", reason="it is not installed")
            self._script = package.Axe().axe_script

    def look(self, place: str) -> None:
        if not self._script:
            return
        # Its half a megabyte stays in the document, whose pages are all one; only what is wrong comes back.
        if not self._page.evaluate("'axe' in window"):
            self._page.evaluate(self._script)
        passes, violations = self._page.evaluate(AXE)
        assert passes > 0, "axe has looked"
        wrong = [each for each in violations if each["impact"] in WRONG]
        if wrong:
            self.found[place] = [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in wrong]
