"""A page with all routes of the API, at the address where RabbitMQ has its own.

What comes in: requests for `/api`, of anybody. What goes out: the page.
Rules: 1. The page is made of the routes, once: method, path, and the first sentence of what each says of itself.
2. It says nothing of this broker, so nobody has to log in for it.
Not here: the same for programs, with bodies and parameters (`document.py`).

Source: RabbitMQ 3.10 answers `/api` and `/api/` with 301 and the location `/api/index.html`.
"""

from __future__ import annotations

from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from amqpd_admin.routes.pages import HEADERS, TYPES, page_of

router = APIRouter()

PAGE = "/api/index.html"
HTML = TYPES[".html"]
HEAD = """<h1>The management API</h1>
<p>RabbitMQ's, of amqpd. For programs there is <a href="/api/openapi.json">an OpenAPI document</a>, for people
<a href="/">pages</a>. A request has a user and a password (HTTP basic authentication); a virtual host or a name is
one part of a path, encoded: / is %2F.</p>
<table>
<thead><tr><th>Method</th><th>Path</th><th>What it is</th></tr></thead>
<tbody>
"""
TAIL = """</tbody>
</table>
"""


def page_of_routes(routes: list[Any]) -> str:
    rows = []
    for route in sorted(
        (each for each in routes if isinstance(each, APIRoute) and each.path.startswith("/api/")),
        key=lambda each: (each.path, sorted(each.methods or ())),
    ):
        if route.include_in_schema:
            first = (route.description or "").partition("\n\n")[0].replace("\n", " ")
            cells = (" ".join(sorted(route.methods or ())), route.path, first)
            rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>\n")
    return page_of("the management API", HEAD + "".join(rows) + TAIL, "tables")


async def show(request: Request) -> Response:
    app = request.app
    if not hasattr(app.state, "reference"):
        app.state.reference = page_of_routes(app.routes)
    return Response(app.state.reference, media_type=HTML, headers=HEADERS)


async def go_there(_: Request) -> Response:
    return Response(status_code=301, headers={"location": PAGE})


router.add_route("/api", go_there, methods=["GET"], include_in_schema=False)
router.add_route(PAGE, show, methods=["GET"], include_in_schema=False)
