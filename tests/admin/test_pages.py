"""The pages as files: all are served as they are, with headers that keep everything else out, and say what they need
themselves. What they do is in `test_browser.py`."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest

import amqpd_admin
from amqpd_admin.routes.pages import FILES, TYPES
from tests.admin.conftest import Api

FOLDER = Path(amqpd_admin.__file__).parent / "pages"
NAMES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())
SCRIPTS = [name for name in NAMES if name.endswith(".js")]
LINES_MAX, LINE_MAX = 300, 118
# What a document that is drawn has to name: no request goes there.
NAMESPACES = ("http://www.w3.org/2000/svg",)


def text(name: str) -> str:
    return (FOLDER / name).read_text()


def fetched(api: Api, name: str, **headers: str) -> httpx2.Response:
    return httpx2.get(f"{api.url}/{'' if name == 'index.html' else name}", headers=headers)


def test_every_file_is_served_as_it_is_to_anybody(api: Api):
    assert sorted(FILES) == NAMES
    for name in NAMES:
        answer = fetched(api, name)
        assert answer.status_code == 200, name
        assert answer.content == (FOLDER / name).read_bytes()
        assert answer.headers["content-type"] == TYPES[Path(name).suffix]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-cache"


def test_the_policy_lets_in_what_the_broker_serves_and_nothing_else(api: Api):
    policy = dict(
        part.strip().split(" ", 1) for part in fetched(api, "").headers["content-security-policy"].split(";")
    )
    assert (
        policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
    )
    assert {policy[f"{kind}-src"] for kind in ("script", "style", "img", "connect")} == {"'self'"}
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in str(policy)


def test_a_file_that_is_the_same_is_not_sent_again(api: Api):
    tag = fetched(api, "js/api.js").headers["etag"]
    again = fetched(api, "js/api.js", **{"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert "content-security-policy" in again.headers


@pytest.mark.parametrize(
    "path",
    ["/index.html", "/js", "/js/", "/js/../app.py", "/js/%2e%2e/app.py", "/..%2fapp.py", "/js/none.js", "//", "/%00"],
)
def test_nothing_else_is_served(api: Api, path: str):
    answer = httpx2.get(httpx2.URL(api.url, raw_path=path.encode()))
    assert answer.status_code == 404
    assert "amqpd_admin" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_pages_are_only_read(api: Api, method: str):
    assert httpx2.request(method, api.url + "/").status_code == 405
    assert api(method, "/no-such-thing").status_code == 404


def test_every_file_is_reached_from_the_first_page():
    reached, waiting = {"index.html"}, ["index.html"]
    while waiting:
        for path in re.findall(r"""["'](/(?:[\w-]+/)*[\w-]+\.(?:js|css|svg))["']""", text(waiting.pop())):
            if path[1:] not in reached:
                reached.add(path[1:])
                waiting.append(path[1:])
    assert sorted(reached) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_no_file_names_an_address_outside(name: str):
    found = [url for url in re.findall(r"""(?:[a-z]+:)?//[\w.-]+[^\s"'`)]*""", text(name)) if url not in NAMESPACES]
    assert found == []
    assert "url(" not in text(name)
    assert "@import" not in text(name)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_makes_html_or_code_of_text(name: str):
    made = r"(?:inner|outer|Adjacent|set)HTML|document\.write|DOMParser|\beval\b|\bFunction\(|srcdoc|javascript:"
    assert re.findall(made, text(name)) == []


def test_nothing_is_inline():
    assert re.findall(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=", text("index.html")) == []
    assert [name for name in SCRIPTS if re.search(r"""setAttribute\(["']style|[{,] style:""", text(name))] == []


@pytest.mark.parametrize("name", NAMES)
def test_files_stay_readable(name: str):
    lines = text(name).splitlines()
    assert len(lines) <= LINES_MAX
    assert [f"{at}: {line}" for at, line in enumerate(lines, 1) if len(line) > LINE_MAX] == []
    if name.endswith(".js"):
        assert lines[0].startswith("// "), "it says what it is"


# Contrast, WCAG 2.2: 4.5 for text, 3 for what is drawn and for the edges of fields.


def colours(theme: int) -> dict[str, str]:
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", text("css/tokens.css"))
    return {name: (light, dark)[theme] for name, light, dark in found}


def brightness(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((brightness(one), brightness(other)))
    return (light + 0.05) / (dark + 0.05)


GROUNDS = ("ground", "surface", "raised", "sunken", "hover")
TEXTS = [
    *((each, ground) for each in ("text", "quiet", "accent") for ground in GROUNDS),
    ("on-accent", "accent"),
    ("on-accent", "accent-strong"),
    ("accent-strong", "accent-ground"),
    ("on-bad", "bad-solid"),
    *((f"{each}", f"{each}-ground") for each in ("good", "warn", "bad")),
    ("bad", "surface"),
    ("bad", "raised"),
]
DRAWN = [(f"series-{at}", "surface") for at in (1, 2, 3)] + [("line-strong", "surface"), ("focus", "ground")]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_what_is_read_stands_out_from_its_ground(theme: int):
    known = colours(theme)
    weak = {
        pair: round(contrast(known[pair[0]], known[pair[1]]), 2)
        for pairs, least in ((TEXTS, 4.5), (DRAWN, 3.0))
        for pair in pairs
        if contrast(known[pair[0]], known[pair[1]]) < least
    }
    assert weak == {}


def test_the_measure_of_contrast():
    assert round(contrast("#000000", "#ffffff"), 1) == 21.0
    assert round(contrast("#777777", "#ffffff"), 2) == 4.48
