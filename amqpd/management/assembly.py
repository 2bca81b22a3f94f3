"""All that operators can ask of a running broker's components.

What comes in: the node, the reader of the journal, what components answer themselves (backup, scrub, audit log). What
goes out: commands.
Not here: the commands (`control_commands.py`), ways in (`control.py`, `face.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from amqpd.journal.writer import BacklogReader
from amqpd.management import control_commands
from amqpd.management.control_answers import Commands, Handler, Stream
from amqpd.management.damaged_rows import DamagedRows
from amqpd.management.messages import MessageOperations
from amqpd.management.orphan_operations import OrphanOperations
from amqpd.management.running import Running


def all_commands(
    on: Running,
    reader: BacklogReader,
    data_dir: Path,
    handlers: Mapping[str, Handler],
    streams: Mapping[str, Stream],
) -> Commands:
    """`handlers` and `streams` are those of the broker's other components, by the commands' names."""
    node, settle = on.node, on.settle
    return Commands(
        {**control_commands.handlers(on), **handlers},
        control_commands.listings(on),
        {
            **control_commands.message_streams(MessageOperations(node, reader, settle)),
            **control_commands.damage_streams(DamagedRows(node, reader, settle, data_dir)),
            **control_commands.orphan_streams(OrphanOperations(node, reader, settle)),
            **streams,
        },
    )
