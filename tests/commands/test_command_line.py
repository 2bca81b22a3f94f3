"""The command as a user meets it: exit codes, one sentence for each mistake, signals. The broker is a
stand-in here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import structlog
import trio

import amqpd
from amqpd import __main__ as command_line
from amqpd.config import Settings
from amqpd.datadir.lock import open_data_directory
from amqpd.errors import NodeFailure, StartupError
from amqpd.process.signals import Stop
from tests.harness.slow import slow

Serve = Callable[[Settings, Stop], Any]


@pytest.fixture(autouse=True)
def as_found(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in [name for name in os.environ if name.upper().startswith("AMQPD_")]:
        monkeypatch.delenv(name)
    mask = os.umask(0o022)
    yield
    os.umask(mask)
    structlog.reset_defaults()


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[Serve], None]:
    """Puts an `amqpd.broker` in place whose `serve` is the given one."""

    def put(serve: Serve) -> None:
        module = types.ModuleType("amqpd.broker")
        module.serve = lambda settings, stop, accept_loss, face: serve(settings, stop)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "amqpd.broker", module)
        monkeypatch.setattr(amqpd, "broker", module, raising=False)

    return put


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = command_line.run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["serve", "--prot", "1"], 2, "no such option '--prot'"),
        (["sreve"], 2, "no such command 'sreve'"),
        (
            ["serve", "extra"],
            2,
            "got unexpected extra argument (extra); 'amqpd serve --help' says what there is",
        ),
        (["serve", "--port"], 2, "option '--port' requires an argument"),
        (
            ["serve", "--port", "x"],
            2,
            "setting port = 'x' (from --port) must be a whole number; give --port another",
        ),
        (["serve", "--log-level", "loud"], 2, "setting log_level = 'loud' (from --log-level) must be one of"),
        (
            ["serve", "--config", "/missing"],
            2,
            "cannot read the configuration file /missing (from --config): ",
        ),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seen, out, err = run(capsys, *arguments)
    assert (seen, out) == (code, "")
    assert err.startswith("amqpd: " + sentence)
    assert err.count("\n") == 1


def test_a_mistake_touches_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stand_in: Callable[[Serve], None]
) -> None:
    stand_in(lambda settings, stop: pytest.fail("served all the same"))
    config = tmp_path / "amqpd.toml"
    config.write_text('data_dir = "data"\nunknown = 1\n')
    assert run(capsys, "serve", "--config", str(config))[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["amqpd.toml"]


def test_help_teaches_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "amqpd user add" in out
    assert all(command in out for command in command_line.COMMANDS)
    code, out, _ = run(capsys, "serve", "--help")
    assert code == 0
    assert "amqpd serve --bind 0.0.0.0 --bind ::" in out
    # Without a command, the same help; the code says that nothing was done.
    assert run(capsys)[0] == 2


def test_help_and_version_import_no_command() -> None:
    script = (
        "import sys; from amqpd.__main__ import run; code = run(['--help'])\n"
        "loaded = [m for m in sys.modules if m.startswith('amqpd.commands') or m.startswith('sqlalchemy')]\n"
        "assert not loaded, loaded; sys.exit(code)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)


def test_version_says_which_kernel(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqpd, "KERNEL", "python")
    monkeypatch.setattr(amqpd, "KERNEL_REASON", "it was asked for")
    monkeypatch.setattr(amqpd, "__version__", "1.2.3", raising=False)
    code, out, _ = run(capsys, "--version")
    assert (code, out) == (0, "amqpd 1.2.3 (kernel: python, for it was asked for)\n")


def served(stand_in: Callable[[Serve], None]) -> list[Settings]:
    seen: list[Settings] = []

    async def serve(settings: Settings, stop: Stop) -> None:
        seen.append(settings)
        await trio.lowlevel.checkpoint()

    stand_in(serve)
    return seen


def test_serve_hands_over_the_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stand_in: Callable[[Serve], None]
) -> None:
    seen = served(stand_in)
    config = tmp_path / "amqpd.toml"
    config.write_text("port = 1\nheartbeat_s = 7\n")
    arguments = ["--config", str(config), "--bind", "127.0.0.1", "--bind", "::1", "--port", "0"]
    assert run(capsys, "serve", *arguments, "--data-dir", str(tmp_path / "d"))[0] == 0
    assert (seen[0].bind, seen[0].port, seen[0].heartbeat_s) == (("127.0.0.1", "::1"), 0, 7)
    assert seen[0].data_dir == tmp_path / "d"


def test_what_the_broker_writes_is_for_its_owner_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stand_in: Callable[[Serve], None]
) -> None:
    async def serve(settings: Settings, stop: Stop) -> None:
        await trio.Path(tmp_path / "journal").write_text("a message")

    stand_in(serve)
    assert run(capsys, "serve")[0] == 0
    assert (tmp_path / "journal").stat().st_mode & 0o777 == 0o600


def test_what_stands_before_serve_counts_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stand_in: Callable[[Serve], None]
) -> None:
    seen = served(stand_in)
    config = tmp_path / "amqpd.toml"
    config.write_text("heartbeat_s = 7\n")
    assert run(capsys, "--config", str(config), "--data-dir", "/a", "serve")[0] == 0
    assert run(capsys, "--data-dir", "/a", "serve", "--data-dir", "/b")[0] == 0
    assert (seen[0].heartbeat_s, seen[0].data_dir, seen[1].data_dir) == (7, Path("/a"), Path("/b"))


def test_other_commands_get_the_settings_as_the_contexts_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Settings] = []

    @click.group()
    def user() -> None:
        """Users."""

    @user.command("list")
    @click.pass_obj
    def list_users(settings: Settings) -> None:
        """List users."""
        seen.append(settings)

    module = types.ModuleType("stand_in_users")
    module.user = user  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "stand_in_users", module)
    monkeypatch.setitem(command_line.COMMANDS, "user", ("stand_in_users", "user", "Users."))

    assert run(capsys, "--data-dir", str(tmp_path), "user", "list")[0] == 0
    assert seen[0].data_dir == tmp_path
    monkeypatch.setenv("AMQPD_PORT", "x")
    code, _, err = run(capsys, "user", "list")
    assert (code, err.count("\n")) == (2, 1)
    code, out, _ = run(capsys, "user", "list", "--help")
    assert (code, "List users." in out) == (0, True)
    monkeypatch.delenv("AMQPD_PORT")
    code, _, err = run(capsys, "user", "list", "--data-dir", "x")
    assert (code, "write it before the command: amqpd --data-dir ... user list\n" in err) == (2, True)


def test_a_broker_that_cannot_start_is_one_sentence_and_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stand_in: Callable[[Serve], None]
) -> None:
    async def serve(settings: Settings, stop: Stop) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise StartupError("port 5672 is taken: choose another")

    stand_in(serve)
    code, out, err = run(capsys, "serve", "--data-dir", str(tmp_path))
    assert (code, out, err) == (1, "", "amqpd: port 5672 is taken: choose another\n")


def test_a_failed_node_is_logged_with_what_broke_beside_it_and_70(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stand_in: Callable[[Serve], None]
) -> None:
    async def serve(settings: Settings, stop: Stop) -> None:
        raise ExceptionGroup("", [OSError("pipe"), ExceptionGroup("", [NodeFailure("fsync failed: EIO")])])

    stand_in(serve)
    code, _, err = run(capsys, "serve", "--log-level", "warning", "--data-dir", str(tmp_path))
    assert code == 70
    [beside, stopped] = err.splitlines()
    assert "OSError('pipe')" in beside
    assert 'level=critical event="node stopped"' in stopped
    assert 'reason="fsync failed: EIO"' in stopped


def test_a_bug_is_shown_with_its_traceback_and_70(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stand_in: Callable[[Serve], None]
) -> None:
    async def serve(settings: Settings, stop: Stop) -> None:
        raise ZeroDivisionError("a bug")

    stand_in(serve)
    code, _, err = run(capsys, "serve", "--data-dir", str(tmp_path))
    assert code == 70
    assert "Traceback" in err
    assert "ZeroDivisionError: a bug" in err


# A broker that says when it can be stopped, and drains as the first argument tells. The second is SAME_SIGNAL_S.
SCRIPT = """
import sys, time, types, trio, amqpd, amqpd.process.signals
from amqpd.__main__ import main

async def serve(settings, stop, accept_loss, face):
    stop.serves = not sys.argv[1].startswith("starting")
    print("READY", flush=True)
    if sys.argv[1] == "starting, hangs":
        time.sleep(3600)
    if not stop.serves:
        with stop.start:
            await trio.sleep_forever()
        return
    await stop.requested.wait()
    print("DRAINING", flush=True)
    if sys.argv[1] == "hanging":
        stop.on_disk = len(sys.argv) > 3
        time.sleep(3600)
    if sys.argv[1] == "busy":
        while True: pass
    if sys.argv[1] == "slow":
        await trio.sleep_forever()
    await trio.to_thread.run_sync(sys.stdin.read)
    print("DRAINED", flush=True)

amqpd.process.signals.SAME_SIGNAL_S = float(sys.argv[2])
if sys.argv[1].endswith(("hanging", "hangs")):
    amqpd.process.signals.LATE_S = 0.05
amqpd.broker = sys.modules["amqpd.broker"] = types.ModuleType("amqpd.broker")
amqpd.broker.serve = serve
main(["serve"])
"""


def start(drain: str, same_signal_s: float, *more: str, **environment: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, drain, str(same_signal_s), *more],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(process, "READY")
    return process


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == line + "\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, slow(signal.SIGINT)])
def test_the_first_signal_drains_and_ends_with_0(number: signal.Signals) -> None:
    with start("quick", 3600) as process:
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, out) == (0, "DRAINING\nDRAINED\n")
    assert f"signal={number.name}" in err


@pytest.mark.parametrize("drain", [slow("slow"), "busy"])
def test_the_second_signal_ends_at_once_even_when_the_loop_is_stuck(drain: str) -> None:
    with start(drain, 0) as process:
        process.send_signal(signal.SIGTERM)
        wait_for(process, "DRAINING")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
    assert process.returncode == 1
    # The log has a thread of its own: its last line may come behind this one.
    assert "amqpd: second signal, exiting without finishing the drain" in err.splitlines()


@pytest.mark.parametrize(("on_disk", "code"), [(("on disk",), 0), ((), 1)])
def test_an_end_that_hangs_is_ended_by_time(on_disk: tuple[str, ...], code: int) -> None:
    """The message loop does not run any more: neither it nor a second signal's handler may be needed for that."""
    with start("hanging", 0, *on_disk, AMQPD_DRAIN_TIMEOUT_S="0") as process:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "amqpd: the end takes longer than drain_timeout_s" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, slow(signal.SIGINT)])
def test_a_start_is_broken_off_by_a_signal_and_nothing_is_said_of_a_drain(number: signal.Signals) -> None:
    with start("starting", 3600) as process:
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert 'hint="it had not begun to serve: the start is broken off"' in err
    assert "drain" not in err


def test_a_start_that_hangs_is_ended_by_time_or_a_second_signal() -> None:
    """What was confirmed before is on disk; there is nothing that this process could finish."""
    with start("starting, hangs", 0, AMQPD_DRAIN_TIMEOUT_S="0") as process:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "exiting without finishing it; it had not begun to serve" in err
    with start("starting, hangs", 0) as process:
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:  # the first one may not have been taken yet
            process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "amqpd: second signal, exiting without finishing a start that had not begun to serve" in err


def test_the_same_signal_from_a_wrapper_does_not_count_as_a_second() -> None:
    with start("quick", 3600) as process:
        process.send_signal(signal.SIGINT)
        wait_for(process, "DRAINING")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate()
    assert (process.returncode, out) == (0, "DRAINED\n")


def test_a_process_that_holds_the_directory_and_answers_nothing_is_named_with_what_it_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_data_directory(tmp_path) as held:
        for said in ("it starts, and has read 50,000 of the 120,000 rows of the journal's index", "it ends"):
            held.say(said)
            code, _, err = run(capsys, "--data-dir", str(tmp_path), "status")
            assert code == 1
            assert f"(process {os.getpid()}) does not answer commands now: {said}\n" in err
        with pytest.raises(StartupError, match=rf"in use by another amqpd \(process {os.getpid()}\)"):
            open_data_directory(tmp_path)
    assert f"no broker runs on {tmp_path}" in run(capsys, "--data-dir", str(tmp_path), "status")[2]
