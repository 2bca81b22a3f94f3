"""`amqpd definitions`, run as people run it, on a stopped broker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import Result

from amqpd.commands import definitions
from amqpd.management.metadata import stored as stored_metadata
from amqpd.management.metadata.stored import StoredMetadata
from amqpd.security.authentication.passwords import verify_password
from amqpd.topology.state import Topology

RABBITMQ_FILE = Path(__file__).parents[1] / "definitions" / "rabbitmq-3.10.json"

Ok = Callable[..., str]
Run = Callable[..., Result]


def stored(data_dir: Path) -> Topology:
    return trio.run(StoredMetadata(data_dir).read)


def write(directory: Path, **sections: Any) -> str:
    file = directory / "file.json"
    file.write_text(json.dumps(sections))
    return str(file)


def export(ok: Ok, directory: Path, name: str, *words: str) -> bytes:
    file = directory / name
    assert ok("definitions", "export", str(file), *words) == f"wrote {file}\n"
    return file.read_bytes()


def test_a_file_of_rabbitmq_imports_and_its_users_log_in(ok: Ok, data_dir: Path, tmp_path: Path) -> None:
    before = export(ok, tmp_path, "before.json")
    plan = ok("definitions", "plan", str(RABBITMQ_FILE))
    assert "+ queue 'orders' in 'shop': x-queue-type quorum\n" in plan
    assert "(left out) binding 'news' -> exchange 'an internal one' in '/', key 'e': one of its ends" in plan
    assert ok("definitions", "import", str(RABBITMQ_FILE), "--dry-run") == plan
    assert export(ok, tmp_path, "still.json") == before
    done = ok("definitions", "import", str(RABBITMQ_FILE))
    assert "created 1 virtual host, 3 users, " in done
    assert "(left out) queues[2]" in done
    topology = stored(data_dir)
    assert verify_password(topology.users["alice"].password_hash, b"secret")
    assert verify_password(topology.users["bob"].password_hash, b"secret")
    assert topology.vhosts["/"].queues["naïve"].arguments["blob"] == b"\xff\xfe"
    assert len({queue.id for vhost in topology.vhosts.values() for queue in vhost.queues.values()}) == 2
    # guest came with the store and is not in the file.
    assert "guest" in topology.users


def test_exporting_and_importing_again_changes_nothing(ok: Ok, data_dir: Path, tmp_path: Path) -> None:
    ok("definitions", "import", str(RABBITMQ_FILE))
    first = export(ok, tmp_path, "first.json")
    plan = ok("definitions", "import", str(tmp_path / "first.json"), "--prune")
    assert re.fullmatch(r"nothing to change; \d+ things are as the file says\n", plan)
    assert export(ok, tmp_path, "second.json") == first
    assert ok("definitions", "export", "-").encode() == first
    assert (tmp_path / "first.json").stat().st_mode & 0o777 == 0o600
    alice = next(user for user in json.loads(first)["users"] if user["name"] == "alice")
    assert alice["password_hash"] == "1F1YL4Q4EVjd3klskFoktOzWqo4qA0IyJYeHmXgYoP1NP+l9"


def test_one_virtual_host_is_exported_and_goes_into_another(ok: Ok, data_dir: Path, tmp_path: Path) -> None:
    ok("definitions", "import", str(RABBITMQ_FILE))
    ok("vhost", "add", "copy")
    file = json.loads(export(ok, tmp_path, "shop.json", "--vhost", "shop"))
    assert file["queues"] == [
        {
            "name": "orders",
            "type": "quorum",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": "quorum"},
        }
    ]
    assert "users" not in file
    ok("definitions", "import", str(tmp_path / "shop.json"), "--vhost", "copy")
    assert list(stored(data_dir).vhosts["copy"].queues) == ["orders"]


def test_prune_removes_what_the_file_does_not_name(ok: Ok, data_dir: Path, tmp_path: Path) -> None:
    ok("definitions", "import", str(RABBITMQ_FILE))
    file = write(tmp_path, queues=[{"vhost": "shop", "name": "orders", "type": "quorum"}], users=[])
    lines = ok("definitions", "plan", file, "--prune").splitlines()
    assert lines == [
        "- user 'bob'",
        "- user 'certificate'",
        "- queue 'naïve' in '/': with 2 bindings and its messages",
        "(kept) user 'alice' stays: the file names no administrator",
        "(kept) user 'guest' stays: the file names no administrator",
        "would remove 2 users, 1 queue; 1 thing is as the file says",
    ]
    facts = json.loads(ok("definitions", "plan", file, "--prune", "--json"))
    assert facts["summary"] == lines[-1]
    assert [(each["section"], each["action"], each["count"]) for each in facts["changes"]] == [
        ("users", "remove", 2),
        ("queues", "remove", 1),
    ]
    assert facts["kept"]["says"] == [line.removeprefix("(kept) ") for line in lines[3:5]]
    assert ok("definitions", "import", file, "--prune").endswith(
        "removed 2 users, 1 queue; 1 thing is as the file says\n"
    )
    topology = stored(data_dir)
    assert sorted(topology.users) == ["alice", "guest"]
    assert (list(topology.vhosts["/"].queues), list(topology.vhosts["/"].bindings())) == ([], [])


def test_conflicts_are_named_and_stop_everything_unless_they_are_skipped(
    run: Run, ok: Ok, data_dir: Path, tmp_path: Path
) -> None:
    ok("definitions", "import", write(tmp_path, queues=[{"vhost": "/", "name": "q"}]))
    request = [{"vhost": "/", "name": "q", "arguments": {"x-max-length": 1}}, {"vhost": "/", "name": "new"}]
    file = write(tmp_path, queues=request)
    for words in (["plan"], ["import"], ["import", "--dry-run"]):
        result = run("definitions", words[0], file, *words[1:])
        assert result.exit_code == 1
        assert "! queue 'q' in '/': x-max-length is none here, 1 in the file\n" in result.stderr
        assert "1 thing of the file conflicts with what is here" in result.stderr
    assert list(stored(data_dir).vhosts["/"].queues) == ["q"]
    ok("definitions", "import", file, "--skip-conflicts")
    queues = stored(data_dir).vhosts["/"].queues
    assert sorted(queues) == ["new", "q"]
    assert not queues["q"].arguments


def test_what_is_not_durable_needs_a_broker_that_runs(ok: Ok, data_dir: Path, tmp_path: Path) -> None:
    file = write(
        tmp_path,
        queues=[{"vhost": "/", "name": "t", "durable": False}],
        bindings=[{"vhost": "/", "source": "amq.topic", "destination": "t", "destination_type": "queue"}],
    )
    assert ok("definitions", "import", file) == (
        "(left out) 2 transient queues, exchanges and bindings: they need a broker that runs\n"
        "nothing to change; 0 things are as the file says\n"
    )
    assert not stored(data_dir).vhosts["/"].queues


def test_a_password_in_clear_text_is_hashed_once(ok: Ok, data_dir: Path, tmp_path: Path) -> None:
    file = write(tmp_path, users=[{"name": "u", "password": "pässword", "tags": ""}])
    ok("definitions", "import", file)
    first = stored(data_dir).users["u"].password_hash
    assert verify_password(first, "pässword".encode())
    assert "nothing to change" in ok("definitions", "import", file)
    assert stored(data_dir).users["u"].password_hash == first


def test_a_large_plan_is_cut_into_transactions(
    ok: Ok, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_metadata, "CHANGES_A_TRANSACTION", 7)
    queues = [{"vhost": "v", "name": f"q{number}"} for number in range(20)]
    bindings = [
        {"vhost": "v", "source": "amq.topic", "destination": queue["name"], "destination_type": "queue"}
        for queue in queues
    ]
    file = write(tmp_path, vhosts=[{"name": "v"}], queues=queues, bindings=bindings)
    ok("definitions", "import", file)
    vhost = stored(data_dir).vhosts["v"]
    assert (len(vhost.queues), len(list(vhost.bindings()))) == (20, 20)
    assert "nothing to change" in ok("definitions", "import", file)


def test_mistakes_about_files(refused: Ok, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "missing.json"
    assert refused("definitions", "import", str(missing)) == f"cannot read {missing}: No such file or directory"
    assert "is not JSON" in refused("definitions", "import", "-", stdin="{")
    file = write(tmp_path, queues=[{"name": "q"}, {"vhost": "/"}])
    result = run("definitions", "import", file)
    assert result.exit_code == 1
    assert result.stderr.count("\n! ") + result.stderr.startswith("! ") == 2
    assert "2 things in it are wrong" in result.stderr
    assert refused("definitions", "export", "x", "--vhost", "nowhere") == "there is no virtual host 'nowhere'"
    assert "cannot write" in refused("definitions", "export", str(tmp_path / "no" / "file"))
    assert (
        "there is no virtual host 'nowhere'"
        in run("definitions", "import", "-", "--vhost", "nowhere", stdin="{}").stderr
    )
    monkeypatch.setattr(definitions, "FILE_BYTES_MAX", 1)
    assert refused("definitions", "import", file) == f"{file} is longer than 1 bytes"


def test_warnings_are_told(run: Run) -> None:
    old = {
        "rabbit_version": "3.5.7",
        "users": [{"name": "u", "password_hash": "AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "tags": ""}],
    }
    result = run("definitions", "import", "-", stdin=json.dumps(old))
    assert result.exit_code == 0
    assert result.stderr == "(warning) the password of user 'u' is an MD5 hash, quick to guess: set a new one\n"
