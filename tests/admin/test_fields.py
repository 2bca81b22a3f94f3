"""Every field that RabbitMQ 4.2 documents is in amqpd's answers, or stands in docs/http.md with the reason."""

from __future__ import annotations

import contextlib
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pika
import pytest
import trustme

from tests.admin.both_brokers import Side
from tests.admin.compare import type_of
from tests.admin.rabbitmq_fields import FIELDS, LEFT_OUT
from tests.admin.same_topology import MADE, MESSAGES, make_clients, wait_known
from tests.clients.broker_process import BrokerProcess, free_port
from tests.clients.test_tls_connections import TlsBroker

DOCS = Path(__file__).parents[2] / "docs" / "http.md"
NULL = "null"


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    port = free_port()
    environment = {"AMQPD_HTTP_ENABLED": "true", "AMQPD_HTTP_PORT": str(port)}
    broker = BrokerProcess(tmp_path_factory.mktemp("fields") / "data", environment=environment)
    try:
        broker.start()
        client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
        side = Side(broker, port, client, {"port": str(broker.port)})
        with contextlib.closing(side):
            side.names["node"] = side.ask("GET", "/overview").json()["node"]
            assert side.ask("PUT", "/cluster-name", {"name": "fields"}).status_code == 204
            for method, path, body in MADE + MESSAGES:
                assert side.ask(method, path, body).status_code < 300, path
            make_clients(side)
            wait_known(side)
            owning = side.connect({"product": "comparison"}, "compared").channel()
            owning.queue_declare("own", exclusive=True)
            owning.exchange_declare("own", "fanout")
            owning.basic_publish("news", "nowhere", b"x")
            for queue in ("sure", "busy"):
                owning.basic_publish("", queue, b"x")
                owning.basic_get(queue, auto_ack=True)
            yield side
    finally:
        broker.close()


def found(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Each field that there is, and its type."""
    if isinstance(value, dict):
        for name, each in value.items():
            inner = f"{where}.{name}" if where else name
            yield inner, type_of(each)
            yield from found(each, inner)
    elif isinstance(value, list):
        for each in value:
            yield from found(each, f"{where}[]")


def left_out(path: str, field: str) -> bool:
    """Those in an object are named with it."""
    named = {field.removeprefix("[]."), re.sub(r"^(\[\]\.)?(message_stats|(listeners|contexts)\[\])\.", "", field)}
    return any(named & set(each.fields.split()) and re.fullmatch(each.where, path) for each in LEFT_OUT)


@pytest.mark.parametrize("path", FIELDS)
def test_the_answer_has_every_field_that_is_documented_in_its_type(side: Side, path: str):
    answer = side.ask("GET", path)
    assert answer.status_code == 200, answer.text
    types: dict[str, set[str]] = {}
    for field, kind in found(answer.json()):
        types.setdefault(field, set()).add(kind)
    wrong = []
    for field, _, kind in (each.rpartition(":") for each in FIELDS[path].split()):
        there, allowed = types.get(field, set()), {kind.removesuffix("?")} | ({NULL} if kind.endswith("?") else set())
        if left_out(path, field):
            wrong += [f"{field} is left out, and is there"] if there else []
        elif not there:
            wrong.append(f"{field} is missing")
        elif kind != "any" and not there <= allowed:
            wrong.append(f"{field} is {there}, not {allowed}")
    assert wrong == []


def test_a_connection_says_how_it_is_encrypted_and_a_node_which_file_it_was_started_with(tmp_path: Path):
    authority, port, file = trustme.CA(), free_port(), tmp_path / "amqpd.toml"
    file.write_text("frame_max = 65536\n")
    broker = TlsBroker(tmp_path / "data", authority)
    broker.environment |= {"AMQPD_HTTP_ENABLED": "true", "AMQPD_HTTP_PORT": str(port), "AMQPD_CONFIG": str(file)}
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    authority.issue_cert(common_name="app", organization_name="Shop").configure_cert(context)
    parameters = pika.ConnectionParameters(
        "localhost", broker.tls_port, ssl_options=pika.SSLOptions(context, "localhost"), heartbeat=60
    )
    try:
        broker.start()
        with pika.BlockingConnection(parameters):
            (row,) = httpx2.get(f"http://127.0.0.1:{port}/api/connections", auth=("guest", "guest")).json()
        (node,) = httpx2.get(f"http://127.0.0.1:{port}/api/nodes", auth=("guest", "guest")).json()
    finally:
        broker.close()
    assert (row["ssl"], row["auth_mechanism"], row["ssl_protocol"]) == (True, "PLAIN", "tlsv1.3")
    assert (row["ssl_key_exchange"], row["ssl_hash"]) == ("any", "aead")
    assert row["ssl_cipher"].startswith(("aes_", "chacha20_"))
    assert re.fullmatch(r"CN=app,.*O=Shop", row["peer_cert_subject"])
    assert all(isinstance(row[f"peer_cert_{each}"], str) for each in ("issuer", "serial_number", "validity"))
    assert node["config_files"] == [str(file)]


def test_what_is_left_out_stands_in_the_documents_with_the_reason():
    said = set(re.findall(r"^\| (`.+`) \| (.+) \| (.+) \|$", DOCS.read_text(), re.MULTILINE))
    wanted = {(", ".join(f"`{name}`" for name in each.fields.split()), each.said, each.why) for each in LEFT_OUT}
    assert wanted - said == set()


def test_each_reason_is_of_a_field_that_rabbitmq_has():
    fields = {(path, each.rpartition(":")[0]) for path, text in FIELDS.items() for each in text.split()}
    for reason in LEFT_OUT:
        for name in reason.fields.split():
            named = [path for path, field in fields if field.endswith(name) and re.fullmatch(reason.where, path)]
            assert named, (name, reason.said)
