"""`process/notify.py`: the READY line says which node takes clients, and where."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from amqpd.management.operators import Operator
from amqpd.process.notify import announce_ready


def test_the_ready_line_names_the_node_and_where_tls_is() -> None:
    with capture_logs() as lines:
        announce_ready("a@x", ["0.0.0.0:5672", "0.0.0.0:5671"], ["0.0.0.0:5671"], [], [Path("/data")])
        announce_ready("a@x", ["0.0.0.0:5672"], [], ["http://0.0.0.0:15672"], [Path("/data")])
    first, second = lines
    assert (first["event"], first["node"], first["tls"], first["http"]) == ("READY", "a@x", "0.0.0.0:5671", "off")
    assert first["listening"] == "0.0.0.0:5672,0.0.0.0:5671"
    assert (second["tls"], second["http"]) == ("off", "http://0.0.0.0:15672")


def test_a_line_says_of_an_operator_what_is_known() -> None:
    assert Operator(user="shop").log_fields == {"user": "shop"}
    assert Operator(uid=0).log_fields == {"uid": 0}
    assert Operator(user="shop", uid=7).log_fields == {"uid": 7, "user": "shop"}
