"""The header x-delay: how long a message waits before it is routed.

What comes in: a table of headers. What goes out: a delay in milliseconds; the header as it stands in what is
delivered.
Rules: 1. A whole number, of any width or as text, delays; a fraction is cut off. 2. None, zero, less, or more than
ten years is no delay. 3. What was delayed carries the delay with a minus sign, so that it is not delayed again, and
consumers can tell.
Not here: what keeps it until then (`node.delay`), the exchange type (`exchanges/delayed_message.py`).

As the plugin rabbitmq_delayed_message_exchange, rabbit_delayed_message_utils.erl, which delays at most 2^32 - 1 ms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from amqpd.wire.fieldtypes import SignedInt

X_DELAY = "x-delay"
DELAY_MS_MAX = 315_360_000_000

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


def delay_ms_of(headers: Mapping[str, Any]) -> int:
    """Milliseconds; 0 for no delay."""
    value = headers.get(X_DELAY)
    if isinstance(value, bool):
        return 0
    if isinstance(value, str):
        delay = int(value) if _INTEGER.fullmatch(value) else 0
    elif isinstance(value, int | float | Decimal) and math.isfinite(value):
        delay = int(value)
    else:
        return 0
    return delay if 0 < delay <= DELAY_MS_MAX else 0


def delayed_header(delay_ms: int) -> Mapping[str, int]:
    """What to set in the headers of a message that waits, or has waited."""
    return {X_DELAY: SignedInt(-delay_ms) if delay_ms < 1 << 31 else -delay_ms}
