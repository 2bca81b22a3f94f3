"""Which nodes a certificate is of.

What comes in: a certificate, as `ssl` describes it. What goes out: names of nodes.
Rules: 1. They are URIs among its subject's alternative names: `amqpd:` and the node's name. So a certificate of one
node is not another one's, and what else is in it (hosts, a common name) does not matter.
Not here: that it is of the cluster's authority, which `ssl` sees to (`tls.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NODE_URI = "amqpd:"


def nodes_named(certificate: Mapping[str, Any]) -> list[str]:
    """In their order there."""
    names = certificate.get("subjectAltName", ())
    return [value.removeprefix(NODE_URI) for kind, value in names if kind == "URI" and value.startswith(NODE_URI)]
