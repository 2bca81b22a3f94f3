"""Passwords as RabbitMQ hashes them, doubtful tags, and lists that fit a terminal: commands on a stopped broker."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from amqpd.commands.tables import table

Ok = Callable[..., str]
Run = Callable[..., Result]


def test_a_password_that_rabbitmq_can_check_is_in_an_export(ok: Ok, refused: Ok, tmp_path: Path) -> None:
    ok("user", "delete", "guest")
    ok("user", "add", "alice", "secret", "--for-rabbitmq")
    ok("user", "add", "bob", "secret")
    file = tmp_path / "all.json"
    said = refused("definitions", "export", str(file), "--for-rabbitmq")
    assert "cannot log in there: bob." in said
    assert "amqpd user passwd NAME --for-rabbitmq" in said
    assert not file.exists()
    ok("user", "passwd", "bob", "other", "--for-rabbitmq")
    ok("definitions", "export", str(file), "--for-rabbitmq")
    users = {user["name"]: user for user in json.loads(file.read_text())["users"]}
    for name, password in (("alice", b"secret"), ("bob", b"other")):
        octets = base64.b64decode(users[name]["password_hash"])
        assert users[name]["hashing_algorithm"] == "rabbit_password_hashing_sha256"
        assert octets[4:] == hashlib.sha256(octets[:4] + password).digest()


@pytest.mark.parametrize(
    ("tag", "meant"),
    [("admin", "administrator"), ("administrater", "administrator"), ("Monitoring", "monitoring"), ("mine", "")],
)
def test_a_tag_that_resembles_one_that_means_something_is_questioned(run: Run, tag: str, meant: str) -> None:
    said = run("user", "tags", "guest", tag)
    assert said.exit_code == 0, "where nobody can answer it is a warning"
    assert said.stdout == f"user 'guest' has the tags {tag}\n"
    assert said.stderr == (f"(warning) the tag '{tag}' does nothing: did you mean '{meant}'?\n" if meant else "")


def test_a_table_is_shortened_to_the_width_where_that_may_be() -> None:
    rows = [{"id": 17, "body": "x" * 100, "properties": "y" * 40}, {"id": 18, "body": "ünï", "properties": ""}]
    columns = ("id", "properties", "body")
    narrow = table(rows, columns, 60, ("properties", "body"))
    assert max(map(len, narrow)) == 60
    assert narrow[1].startswith("17  yyyy")
    assert narrow[1].endswith("xxx...")
    assert "ünï" in narrow[2]
    assert max(map(len, table(rows, columns, 10, ("body",)))) > 10, "what may not be shortened is not"
    assert max(map(len, table(rows, columns))) == 2 + 2 + 40 + 2 + 100
