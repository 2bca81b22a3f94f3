"""All mistakes that are planted, with the seed that finds each.

What comes in: nothing. What goes out: a table, in the order of the rules of docs/decisions/remote-protocol.md.
"""

from __future__ import annotations

from tests.remote.simulation import bugs_of_edges as edges
from tests.remote.simulation import bugs_of_leaders as leaders
from tests.remote.simulation.bugs import NoBug

Seeds = dict[type[NoBug], int]
"""mistake -> a seed with which it was found; another change of the generator may need another seed"""

RULES: dict[int, Seeds] = {
    1: {
        edges.ReadsTheOlderSession: 7,
        edges.StateIsSentOnce: 0,
        leaders.ReadsTheOlderSession: 0,
        leaders.TakesAnyOperation: 3,
        leaders.TakesALateAttach: 1,
        leaders.MarkIsNotRaised: 2,
        leaders.AnswersWithoutItsLease: 4,
    },
    2: {leaders.MarkBehindItsEffects: 2, leaders.MarkInFrontOfItsEffects: 1, leaders.RefusalsAreNotLogged: 1},
    3: {
        edges.ConfirmsWhatTheMarkHas: 1,
        leaders.DecidedBeforeItIsCommitted: 1,
        leaders.SaysDecidedOnce: 11,
        leaders.OutcomesAreToldOnce: 1,
    },
    4: {edges.PublishersDoNotWait: 0},
    5: {edges.SendsNothingAgain: 1, edges.SendsAllAgain: 0, edges.SendsAgainAsNew: 3},
    6: {edges.RefusalsAreNotHeard: 1},
    7: {leaders.GoneRefuses: 1},
    8: {
        leaders.EndedComesBack: 4,
        leaders.EndedIsNotLogged: 4,
        leaders.EndedHoldsOn: 18,
        leaders.OlderIncarnationGoesOn: 2,
    },
    9: {edges.GivenUpHasNoNumber: 4, edges.UnknownIsConfirmed: 4},
    10: {
        edges.LoweredIsFree: 9,
        edges.QuestionOutlivesItsSession: 1,
        leaders.KeepsItsOwnCount: 4,
        leaders.AnswersWithoutLowering: 4,
        leaders.BytesAreNotCompared: 2,
    },
    12: {leaders.AcknowledgesByItself: 0},
    14: {edges.GetIsAskedOnce: 0},
    15: {edges.AsksOnce: 1},
    16: {
        edges.ClaimsNothing: 1,
        edges.ClaimsOnlyWhatIsHeld: 3,
        edges.ClaimsWithoutTheOperation: 3,
        edges.NeverGivesWay: 6,
        leaders.NothingGoesBack: 2,
        leaders.DoneIsClaimed: 3,
        leaders.UnclaimedIsNotRedelivered: 2,
    },
    17: {edges.HoldsWhatWasRefused: 3},
    18: {leaders.KeepsForNoLease: 25, leaders.KeepsForEver: 18},
    19: {
        leaders.WaitsForNobody: 1,
        leaders.WaitsForEver: 1,
        leaders.DeliversAtOnce: 3,
        leaders.NothingIsRedelivered: 2,
        leaders.HandsOverNobody: 15,
        leaders.HandsOverWithoutTheWait: 12,
        leaders.HandOverOfAnyLog: 3,
    },
    21: {leaders.ActsOnWhatItOnceSent: 2},
    24: {edges.GetOvertakes: 3, leaders.PartsOfAPurgeAreNotCounted: 2, leaders.PurgeIsDoneWithItsFirstStep: 2},
    25: {edges.DeliversBehindACancel: 9, leaders.CancelKeepsWhatCrosses: 2, leaders.ReleaseKeeps: 9},
    26: {leaders.UnclaimedIsCounted: 2},
    27: {edges.NobodyCompares: 3, edges.TakesAnyNumber: 2},
    28: {edges.EndedIsNotHeard: 10, leaders.GoneSaysNothing: 4},
    29: {leaders.PurgesAtOnce: 9, leaders.CountsAtOnce: 0},
    31: {leaders.OutcomesAreKept: 0},
}
PLANTED: Seeds = {bug: seed for seeds in RULES.values() for bug, seed in seeds.items()}
