"""All mistakes that are planted, with the seed that finds each.

What comes in: nothing. What goes out: a table. First what a cluster of this design was known to need from the
beginning, in words; then what was found, or feared, while it was made.
"""

from __future__ import annotations

from tests.replication.simulation import bugs_of_copies as copies
from tests.replication.simulation import bugs_of_disks as disks
from tests.replication.simulation import bugs_of_leaders as leaders
from tests.replication.simulation import bugs_of_sets as sets
from tests.replication.simulation import bugs_of_starts as starts
from tests.replication.simulation.bugs import NoBug

Seeds = dict[type[NoBug], int]
"""mistake -> a seed with which it was found; another change of the generator may need another seed"""

REQUIRED: dict[str, Seeds] = {
    "ack before fsync": {disks.AckBeforeSync: 0},
    "no epoch check": {copies.NoEpochCheck: 0},
    "commit of an old epoch's entry without a new one": {copies.CommitOfAnOldEpoch: 4},
    "an empty replica votes": {leaders.EmptyReplicaVotes: 4},
    "vote not durable": {disks.VoteNotDurable: 7},
    "delete at local commit": {disks.DeleteAtLocalCommit: 8},
    "recovery deletes what an uncommitted settle names": {disks.RecoveryBuriesUncommittedSettles: 8},
    "reused numbers": {leaders.ReusedNumbers: 0},
    "a dead letter's settle before its target's commit": {leaders.DeadLetterSettledTooEarly: 3},
    "leader lease counted from the answer": {leaders.LeaderLeaseFromTheAnswer: 9, copies.DelayFromTheReply: 1},
    "catch-up that resurrects": {disks.DeadRowsLive: 0},
    "undo by idx alone": {disks.UndoByIdxAlone: 4, copies.ByIdxAlone: 3},
    "a resend that undoes what is longer": {copies.ResendUndoesWhatIsLonger: 16},
    "a vote that overtakes the writer": {copies.VoteOvertakesTheWriter: 98},
    "a wiped replica that acknowledges": {leaders.WipedReplicaAcknowledges: 0},
    "two leaders of one epoch after an old store came back": {leaders.TwoLeadersOfOneEpoch: 3},
    "half of an even set": {leaders.HalfOfAnEvenSet: 14},
    "a leader that comes back in its old epoch": {leaders.BackInTheOldEpoch: 0},
    "a publish refused, then confirmed by a resend": {leaders.RefusedThenConfirmed: 3},
}
FURTHER: Seeds = {
    disks.DamagedDiskCounts: 0,
    copies.AckOfWhatWasNotMatched: 0,
    copies.VotesWithoutWaiting: 2,
    copies.StateAfterWhatIsNotCommitted: 9,
    copies.StateIsEverything: 0,
    copies.DamageIsTaken: 0,
    leaders.HighestLogIgnored: 0,
    leaders.PeersApartCount: 1,
    leaders.EmptyDiskKeepsTheLeaderLease: 0,
    leaders.OwnVoteDoesNotWait: 0,
    leaders.AdmittedByAnOlderAnswer: 0,
    leaders.NothingKeptIsNothingThere: 5,
    leaders.LeftOutIsConfirmed: 18,
    leaders.PeersHearNothingOfWhatIsLeftOut: 0,
    leaders.FetchedStateIsEverything: 5,
    sets.AddedTooEarly: 0,
    sets.NewSetSpeaksOfBefore: 4,
    sets.NumbersOfBefore: 4,
    sets.FramesOfTheOwnVersion: 3,
    starts.NonceOfEachStart: 120,
    starts.OlderCopyGoesOn: 2,
    starts.PutBeforeItIsKept: 2,
}
PLANTED: Seeds = {bug: seed for seeds in (*REQUIRED.values(), FURTHER) for bug, seed in seeds.items()}
