"""The loads carry what they say that they carry, so that what is counted is the work and not its absence."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.cost.clients import Client
from tests.cost.loads import BY_NAME, KINDS, Load
from tests.cost.rig import Rig, StillClock, serve
from tests.harness.output import Output

FRAME_MAX = 131_072
FIRST, MORE = 130, 270


def heard(client: Client) -> tuple[int, int]:
    """Deliveries and confirmed publishes, read by a strict client."""
    assert client.heard is not None
    output = Output()
    events = output.feed(b"".join(client.heard), FRAME_MAX)
    return sum(event[0] == "deliver" for event in events), output._confirmed[1]


@pytest.mark.parametrize("name", [kind.name for kind in KINDS])
def test_every_message_is_confirmed_delivered_and_acknowledged(name: str, tmp_path: Path) -> None:
    async def main() -> None:
        rig = Rig(tmp_path)
        rig.recording = True
        kind = BY_NAME[name]
        load = Load(rig, kind)

        async def work() -> None:
            await load.run(FIRST)
            await load.run(MORE)

        await serve(rig, work)
        messages = FIRST + MORE
        copies = len(kind.queues) if kind.exchange_type == "fanout" else 1
        delivered = sum(heard(consumer)[0] for consumer in load.consumers)
        assert delivered == (messages * copies if kind.consumers else 0)
        confirmed = sum(heard(publisher)[1] for publisher in load.publishers)
        assert confirmed == (messages if kind.confirms else 0)
        backlogs = [queue.backlog for queue in rig.node.queues.values()]
        assert sum(backlog.ready for backlog in backlogs) == (0 if kind.consumers else messages)
        assert sum(backlog.unacked for backlog in backlogs) == 0, "400 messages are two acks of 200"
        # What the consumer has before its commit begins is no reason for one, but the last deletion is.
        assert (rig.calls["commit"] > 1) == (kind.durable and kind.commits)
        load.close()
        rig.close()

    trio.run(main, clock=StillClock())
