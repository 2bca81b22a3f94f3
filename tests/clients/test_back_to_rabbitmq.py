"""Going back to RabbitMQ: a real one takes an export, and its users log in there with the passwords they had here."""

from __future__ import annotations

import json
from pathlib import Path

import pika
import pika.exceptions
import pytest

from amqpd.__main__ import run

pytest.importorskip("httpx2", reason="needs httpx2 (pip install '.[etcd]' in a checkout)")

from tests.admin.both_brokers import both, missing

pytestmark = (
    pytest.mark.slow
)  # RabbitMQ takes some ten seconds to start; `tests/commands` shows the file that it gets


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_user_whose_password_is_kept_as_rabbitmq_hashes_it_logs_in_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with both(tmp_path) as (rabbitmq, amqpd):
        here = ["--data-dir", str(amqpd.broker.data_dir)]
        file = tmp_path / "all.json"
        assert run([*here, "user", "add", "kept", "söcret", "--for-rabbitmq"]) == 0
        assert run([*here, "user", "add", "lost", "other"]) == 0
        for name in ("kept", "lost"):
            assert run([*here, "permission", "set", "/", name, ".*", ".*", ".*"]) == 0
        assert run([*here, "definitions", "export", str(file)]) == 0
        assert "cannot log in there: guest, lost." in capsys.readouterr().err
        document = file.read_text()
        assert rabbitmq.ask("POST", "/definitions", json.loads(document)).status_code == 204
        assert logs_in(rabbitmq.broker.port, "kept", "söcret")
        assert not logs_in(rabbitmq.broker.port, "kept", "wrong")
        assert not logs_in(rabbitmq.broker.port, "lost", "other")
        assert logs_in(amqpd.broker.port, "kept", "söcret")


def logs_in(port: int, user: str, password: str) -> bool:
    parameters = pika.ConnectionParameters("127.0.0.1", port, credentials=pika.PlainCredentials(user, password))
    try:
        pika.BlockingConnection(parameters).close()
    except (pika.exceptions.ProbableAuthenticationError, pika.exceptions.AuthenticationError):
        return False
    return True
