"""Which metadata.db a start of several directories goes on with.

What comes in: the directories of the last incarnation, each of which has the definitions up to some revision, and the
others. What goes out: the one with most; which others have the same; or `StartRefused`, with one sentence.
Rules: 1. One is taken only when all of it was read, and has everything that it promised. 2. Whether the one with most
has all is the journal's word (`datadir/pairing.py`): it notes each change. 3. Without one that is whole, what else is
there is older: it is taken only when the operator accepts losses. 4. The same revision is not the same contents.
Not here: copying (`copying.py`), the open files (`mirrored_file.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from amqpd.datadir.disks.election import StartRefused
from amqpd.datadir.opening import METADATA_DB
from amqpd.topology.metadata.sqlite.database import close_database, examine_database, open_database
from amqpd.topology.metadata.sqlite.glance import Glance, glance
from amqpd.topology.metadata.sqlite.verification import DatabaseContents
from amqpd.topology.metadata.store import MetadataStoreError, NewerMetadataFormat


class DefinitionsChoice:
    """Chooses the `metadata.db` with which one start of a node with several directories goes on."""

    def __init__(self, paths: list[Path], *, accept_loss: bool) -> None:
        self._paths = [each / METADATA_DB for each in paths]
        self._accept_loss = accept_loss
        self._found: dict[int, tuple[Glance | None, DatabaseContents | None]] = {}
        """those of candidates that are whole"""
        self.lost = False
        """what was taken lacks some, and the operator accepts it"""

    def choose(self, candidates: Mapping[int, object], members: list[int]) -> int | None:
        """`candidates`: of two with the same revision the one with the greater value is taken. None: there are none.
        Raises StartRefused, OSError."""
        reasons = []
        for at in candidates:
            try:
                contents = examine_database(self._paths[at])
            except NewerMetadataFormat as error:
                raise StartRefused(str(error)) from error
            except MetadataStoreError as error:
                reasons.append(str(error))
                continue
            if self._is_there(at):
                self._found[at] = glance(self._paths[at]), contents
        if self._found:
            return max(self._found, key=lambda at: (self._revision(at), candidates[at], -at))
        others = [at for at in members if at not in candidates and self._is_there(at)]
        if not reasons and not others:
            return None
        if self._accept_loss:
            return self._least_lost([*candidates, *others], reasons)
        missing = [str(self._paths[at]) for at in candidates if not self._is_there(at)]
        if missing:
            reasons.append(f"{' and '.join(missing)} {'are' if missing[1:] else 'is'} missing")
        raise StartRefused(
            f"no data directory has all definitions ({'; '.join(reasons)}): restore a backup, or start once with "
            "--accept-loss to go on with what can be read"
        )

    def are_same(self, at: int, best: int) -> bool:
        """Nothing is to be copied."""
        return at == best or (at in self._found and self._found[at] == self._found.get(best))

    def _least_lost(self, those: list[int], reasons: list[str]) -> int:
        """The first one that can be opened. Raises StartRefused."""
        self.lost = True
        for at in [each for each in those if self._is_there(each)]:
            path = self._paths[at]
            try:
                opened = open_database(path, accept_loss=True)
                if opened.mark is not None:
                    opened.mark.close()
                close_database(opened.connection, path)
            except MetadataStoreError as error:
                reasons.append(str(error))
            else:
                return at
        raise StartRefused(
            f"no data directory has definitions that can be read ({'; '.join(dict.fromkeys(reasons))})"
        )

    def _revision(self, at: int) -> int:
        contents = self._found[at][1]
        return -1 if contents is None else contents.revision

    def _is_there(self, at: int) -> bool:
        path = self._paths[at]
        return path.exists() and path.stat().st_size > 0
