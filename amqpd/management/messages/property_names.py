"""Properties of a message that an operator can give, by RabbitMQ's names.

What comes in: nothing. What goes out: names, by the kind of their values; `headers` and `type` are beside them.
Rules: this loads nothing else: the command line names them before it asks a broker.
Not here: what they become (`publishing.py`).
"""

from __future__ import annotations

TEXTS = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "user_id",
    "app_id",
    "cluster_id",
)
NUMBERS = {"delivery_mode": 0xFF, "priority": 0xFF, "timestamp": 2**63 - 1}
"""and the greatest that there may be"""
