"""The pages: files as they are, with headers that keep everything else out of them.

What comes in: the names of files in `pages/`. What goes out: those files.
Rules: 1. The files are read once, and a request names one of them or nothing: no path is made of what a client says.
2. A page runs scripts and takes styles of this broker only, asks nobody else, and is in nobody's frame. 3. Scripts
make no HTML of text (`require-trusted-types-for`). 4. A browser asks each time whether a file is still the same, so
that a new version is there at once.
Not here: what is on the pages (`pages/`), what they ask for (the other routes).

Source: https://developer.mozilla.org/docs/Web/HTTP/Headers/Content-Security-Policy.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

router = APIRouter()

FOLDER = Path(__file__).parents[1] / "pages"
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
HEADERS = {
    "content-security-policy": "; ".join(POLICY),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


def page_of(title: str, body: str, *styles: str) -> str:
    """A page without scripts, in the pages' looks. `styles`: of `pages/css/`, beside those that all have."""
    sheets = "".join(f'<link rel="stylesheet" href="/css/{name}.css">\n' for name in ("tokens", "base", *styles))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>amqpd: {title}</title>
<link rel="icon" href="/icon.svg" type="image/svg+xml">
{sheets}</head>
<body>
<main>
{body}</main>
</body>
</html>
"""


@dataclass(frozen=True)
class File:
    """A file of the pages. `tag` is another one when the file is."""

    body: bytes
    type: str
    tag: str


def read_files(folder: Path) -> dict[str, File]:
    """By their names inside the folder; those of other kinds are not served."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in TYPES:
            body = path.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            found[path.relative_to(folder).as_posix()] = File(body, TYPES[path.suffix], tag)
    return found


FILES = read_files(FOLDER)


async def show(request: Request) -> Response:
    """A file, by the path of its route; the first page at `/`."""
    file = FILES[request.url.path.removeprefix("/") or INDEX]
    headers = {**HEADERS, "etag": file.tag}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.body, media_type=file.type, headers=headers)


# One for each: a route for all names would answer other methods of paths that nobody has.
for _name in FILES:
    router.add_route("/" if _name == INDEX else f"/{_name}", show, methods=["GET"], include_in_schema=False)
