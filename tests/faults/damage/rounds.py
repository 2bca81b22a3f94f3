"""One round: a copy of an image is damaged, a broker is started on it, everything is taken out of it.

What comes in: an image, a `Damage`. What goes out: an `Outcome`.
Rules: 1. Nothing waits for a time: a start ends with READY or with the process, a drain when the broker has nothing
more to give. Limits of time are for what hangs. 2. A broker that ends while it serves is started again, as a service
manager would. 3. Clients use AMQP alone; what the operator sees is asked on the control socket, as the commands do.
4. Before the first start `amqpd check` is asked what it finds.
Not here: what is to be thought of it (`judge.py`).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pamqp import commands

from amqpd.checking.check import check
from amqpd.checking.report import DAMAGE, NEWER, NOTE
from amqpd.management.control.socket import rows as control_rows
from amqpd.management.errors import ManagementError
from tests.clients.broker_process import BrokerFailed
from tests.clients.wire import METHOD, Wire, decode_method, publish_bytes

from .books import Book
from .damages import Damage
from .drains import Drain
from .forked import ForkedBroker
from .judge import NOTHING, STARTS_MAX, Outcome

START_S = 60.0
STOP_S = 30.0
# Not data: who holds the directory, sockets, and what SQLite shares between processes.
VOLATILE = ("amqpd.lock", "control.sock")
RESERVE = "reserve"


def play(images: Path, damage: Damage, folder: Path, *, again: bool = False) -> tuple[Book, Outcome]:
    """`folder` is made, and left as the round left it. `again`: a stop in good order, and a second drain."""
    data = folder / "data"
    shutil.copytree(images / damage.image / "data", data, copy_function=_copied)
    book = Book.load(images / damage.image / "book.json")
    damage.apply(data)
    checked = check_offline(data)
    seen = look(book, data, again=again)
    seen.checked = checked
    return book, seen


def check_offline(data: Path) -> str:
    """What `amqpd check` says of it: one of `judge.CHECKED`, or what went wrong with it."""
    before = _contents(data)
    try:
        report = check(data).report
    except Exception as error:  # noqa: BLE001 - whatever it is, the judge has it
        return f"failed: {error!r}"
    if changed := _differences(before, _contents(data)):
        return f"changed {', '.join(changed)}"
    if report.count(DAMAGE) or report.count(NEWER):
        return DAMAGE  # a format may be the damage
    return NOTE if report.count(NOTE) else NOTHING


def _copied(source: str, target: str) -> None:
    """32 MB that mean nothing are not copied byte by byte."""
    if not Path(source).name.endswith(RESERVE):
        shutil.copyfile(source, target)
    else:
        with Path(target).open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, Path(source).stat().st_size)
    shutil.copystat(source, target)


def look(book: Book, data: Path, *, again: bool = False, arguments: Sequence[str] = ()) -> Outcome:
    """`arguments`: for `amqpd serve`."""
    before = _contents(data)
    broker = ForkedBroker(data, book.environment)
    broker.arguments += arguments
    seen = Outcome()
    try:
        while _start(broker, seen):
            if _take(broker, book, seen):
                break
            if seen.hung or len(seen.ended) >= STARTS_MAX:
                return seen
        else:
            if not seen.ended and not seen.hung:
                seen.changed = _differences(before, _contents(data))
            return seen
        if again:
            _once_more(broker, book, seen)
    finally:
        broker.close()
        seen.log = broker.log.splitlines()
    return seen


def _start(broker: ForkedBroker, seen: Outcome) -> bool:
    """Whether it serves."""
    broker.spawn()
    try:
        broker.wait_ready(START_S)
    except BrokerFailed as failed:
        if "no READY" in str(failed):
            seen.hung = f"no READY within {START_S:g} s"
        elif not seen.ended:
            assert broker._process is not None
            seen.exit_code = broker._process.returncode
        return False
    return True


def _take(broker: ForkedBroker, book: Book, seen: Outcome) -> bool:
    """Everything that it gives. False: it ended meanwhile, or hangs."""
    drain = Drain(broker.port, broker.data_dir, book, seen)
    try:
        drain.run()
        seen.orphans = _orphans(broker.data_dir)
        if seen.orphans:
            _adopt(broker, book, seen)
        seen.unbound = _probe(broker.port, book)
        return True
    except (OSError, AssertionError, ManagementError) as error:
        code = broker.exit_code(5.0)
        if code is None:
            seen.hung = seen.hung or f"the drain failed, and the broker goes on: {error!r}"
        else:
            broker._join()
            seen.ended.append(code)
        return False


def _once_more(broker: ForkedBroker, book: Book, seen: Outcome) -> None:
    """A restart in good order: what was taken stays away."""
    try:
        code = broker.terminate(STOP_S)
    except BrokerFailed:
        seen.hung = f"not stopped after {STOP_S:g} s"
        return
    if code:
        seen.ended.append(code)
        return
    later = Outcome()
    if not _start(broker, later):
        seen.hung = later.hung
        if later.exit_code is not None:
            seen.wrong.append(f"served, and the next start was refused with exit code {later.exit_code}")
        return
    if not _take(broker, book, later):
        seen.hung, seen.ended = later.hung, seen.ended + later.ended
    seen.again = later.deliveries
    seen.wrong += later.wrong


def _orphans(data: Path) -> list[dict[str, object]]:
    try:
        return control_rows(data, "orphans list", {}, START_S) or []
    except ManagementError as error:
        if "unknown command" in str(error) or "no command" in str(error):
            return []  # a broker that has none yet
        raise


def _adopt(broker: ForkedBroker, book: Book, seen: Outcome) -> None:
    """Every orphan goes to a queue of its own, and out of that."""
    names = {str(orphan["id"]): f"adopted.{orphan['id']}" for orphan in seen.orphans}
    with Wire(broker.port, timeout_s=STOP_S) as wire:
        wire.open()
        wire.open_channel()
        for orphan, name in names.items():
            wire.call(commands.Queue.Declare(queue=name, durable=True), channel=1)
            request = {"id": orphan, "vhost": "/", "queue": name}
            answer = control_rows(broker.data_dir, "orphans adopt", request, START_S) or [{}]
            seen.left += int(answer[-1].get("left", 0))
    later = Outcome()
    # Nothing is known of what comes: the drain ends when the queues are empty.
    Drain(broker.port, broker.data_dir, Book(book.kind), later).run()
    seen.adopted = {orphan: later.deliveries.pop(name) for orphan, name in names.items()}
    for queue, came in later.deliveries.items():
        seen.deliveries.setdefault(queue, []).extend(came)
    seen.wrong += later.wrong
    seen.hung = seen.hung or later.hung


def _probe(port: int, book: Book) -> list[str]:
    """Exchanges, and bindings of theirs, that are not there: a message is published through each."""
    gone = []
    with Wire(port, timeout_s=STOP_S) as wire:
        wire.open()
        for exchange, queues in book.bound.items():
            wire.open_channel()
            wire.call(commands.Confirm.Select(), channel=1)
            answer = wire.call(commands.Exchange.Declare(exchange=exchange, passive=True), channel=1)
            if not isinstance(answer, commands.Exchange.DeclareOk):
                gone.append(f"exchange {exchange}")
                wire.send(commands.Channel.CloseOk(), channel=1)
                continue
            transient = commands.Basic.Properties(delivery_mode=1)
            wire.send_bytes(publish_bytes(1, exchange, "", b"probe", transient, mandatory=True))
            # A return comes first, and its content; the confirm ends it.
            while (method := _skip_content(wire)) is not None and not isinstance(method, commands.Basic.Ack):
                pass
            for queue in queues:
                answer = wire.call(commands.Queue.Declare(queue=queue, passive=True), channel=1)
                if not isinstance(answer, commands.Queue.DeclareOk):
                    gone.append(f"queue {queue}")
                    wire.send(commands.Channel.CloseOk(), channel=1)
                    wire.open_channel()
                elif not answer.message_count:
                    gone.append(f"binding of {queue} to {exchange}")
                else:
                    wire.call(commands.Queue.Purge(queue=queue), channel=1)
    return gone


def _skip_content(wire: Wire) -> object:
    kind, _, payload = wire.read_frame()
    while kind != METHOD:
        kind, _, payload = wire.read_frame()
    return decode_method(payload)


def _contents(data: Path) -> dict[str, bytes]:
    found = {}
    for path in data.rglob("*"):
        name = path.relative_to(data).as_posix()
        if path.is_file() and name not in VOLATILE and not name.endswith("-shm"):
            found[name] = path.read_bytes() if not name.endswith(RESERVE) else b"%d" % path.stat().st_size
    return found


def _differences(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    changed = [f"{name} (gone)" for name in before if name not in after]
    changed += [f"{name} (new)" for name in after if name not in before]
    return changed + [name for name in before if name in after and before[name] != after[name]]


def keep(folder: Path, to: Path, story: dict[str, object]) -> None:
    """A failing round for later: the directory as the round left it, and what was seen."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*.sock"))
    (to / "story.json").write_text(json.dumps(story, indent=2, default=str))
