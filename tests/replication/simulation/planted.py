"""All mistakes that are planted, with the seed that finds each."""

from __future__ import annotations

from tests.replication.simulation import bugs_of_copies as copies
from tests.replication.simulation import bugs_of_disks as disks
from tests.replication.simulation import bugs_of_homes as homes
from tests.replication.simulation.bugs import NoBug

PLANTED: dict[type[NoBug], int] = {
    disks.AckBeforeSync: 0,
    disks.SealNotDurable: 0,
    disks.UndoByIdxAlone: 0,
    disks.DeleteAtLocalCommit: 0,
    disks.RecoveryBuriesUncommittedSettles: 0,
    disks.DeadRowsLive: 0,
    disks.DamagedDiskCounts: 0,
    copies.NoEpochCheck: 0,
    copies.CommitOfAnOldEpoch: 0,
    copies.SealOvertakesTheWriter: 0,
    copies.ByIdxAlone: 0,
    copies.ResendUndoesWhatIsLonger: 0,
    copies.AckOfWhatWasNotMatched: 0,
    copies.DelayFromTheReply: 0,
    copies.SealsWithoutWaiting: 0,
    copies.StateAfterWhatIsNotCommitted: 0,
    copies.StateTakesPlaceTooEarly: 0,
    copies.DamageIsTaken: 0,
    homes.TwoHomesOfOneEpoch: 0,
    homes.HalfOfAnEvenSet: 0,
    homes.BackInTheOldEpoch: 0,
    homes.HighestLogIgnored: 0,
    homes.PeersApartCount: 0,
    homes.EmptyReplicaVotes: 0,
    homes.WipedReplicaAcknowledges: 0,
    homes.ReignFromTheAnswer: 0,
    homes.EmptyDiskKeepsTheReign: 0,
    homes.OwnSealDoesNotWait: 0,
    homes.AdmittedByAnOlderAnswer: 0,
    homes.NothingKeptIsNothingThere: 0,
    homes.LeftOutIsConfirmed: 0,
    homes.PeersHearNothingOfWhatIsLeftOut: 0,
    homes.FetchedStateIsEverything: 0,
    homes.ReusedNumbers: 0,
    homes.LetterSettledTooEarly: 0,
}
"""mistake -> a seed with which it was found; another change of the generator may need another seed"""

UNSEEN: frozenset[type[NoBug]] = frozenset()
"""No seed of 1,000 finds these."""
