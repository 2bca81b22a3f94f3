"""Programs that the broker gives away, at the addresses where RabbitMQ has its own.

What comes in: requests for `/cli`, of anybody. What goes out: the page with links, the programs.
Rules: tools that set up machines fetch `/cli/rabbitmqadmin` and run it with Python, so a program is what they get.
Not here: the program (`amqpd_admin/cli/rabbitmqadmin.py`).

Source: RabbitMQ 3.10 answers `/cli` with 301 and the location `/cli/index.html`.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from amqpd_admin import cli
from amqpd_admin.routes.pages import HEADERS, TYPES, page_of

router = APIRouter()

PAGE = "/cli/index.html"
PROGRAM = "/cli/rabbitmqadmin"
BODY = (Path(cli.__file__).parent / "rabbitmqadmin.py").read_bytes()
HTML = page_of(
    "command line",
    """<h1>Command line</h1>
<p><a href="/cli/rabbitmqadmin">rabbitmqadmin</a> has the words of RabbitMQ's program of this name, and needs Python
3.9 or newer: save it, make it executable, and begin with <code>rabbitmqadmin --help</code>. Where amqpd is installed,
<code>amqpd --url</code> does more.</p>
""",
)


async def show(_: Request) -> Response:
    return Response(HTML, media_type=TYPES[".html"], headers=HEADERS)


async def give(_: Request) -> Response:
    return Response(BODY, media_type="application/octet-stream", headers={"x-content-type-options": "nosniff"})


async def go_there(_: Request) -> Response:
    return Response(status_code=301, headers={"location": PAGE})


for _path, _answer in (("/cli", go_there), (PAGE, show), (PROGRAM, give)):
    router.add_route(_path, _answer, methods=["GET"], include_in_schema=False)
