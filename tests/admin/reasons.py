"""Why an answer of amqpd may differ from RabbitMQ's: one list."""

from __future__ import annotations

import re
from typing import NamedTuple


class Reason(NamedTuple):
    """Regular expressions that match the whole of a request, of the kinds of difference, and of a field."""

    request: str
    kinds: str
    field: str
    why: str


EVERYWHERE = r".*"
REASONS: list[Reason] = [
    Reason(EVERYWHERE, "missing|extra|value|type", r"(.*\.)?(garbage_collection|reductions|reductions_details)(\..*)?", "Erlang"),
]


def reason_of(request: str, kind: str, field: str) -> str:
    """Empty: none."""
    for each in REASONS:
        if (
            re.fullmatch(each.kinds, kind)
            and re.fullmatch(each.field, field)
            and re.fullmatch(each.request, request)
        ):
            return each.why
    return ""
