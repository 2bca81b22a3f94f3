"""What a leader has of one incarnation of an edge: its outcomes, beside a plain list of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amqpd.journal.operation_marks import Outcome, Refused, ranges_of
from amqpd.remote.incarnation import LeaderOutbox, RemoteIncarnation
from amqpd.remote.messages import Decided

STEPS = st.lists(
    st.tuples(st.sampled_from(["done", "done", "hear", "commit", "record", "attach"]), st.integers(0, 12)),
    max_size=40,
)


@given(STEPS)
def test_outcomes_are_logged_and_told_once_and_kept_until_they_are_heard(steps: list[tuple[str, int]]) -> None:
    out = LeaderOutbox()
    of = RemoteIncarnation(("a", 1), out, 0.0)
    of.attach(1, 0)
    kept: list[Outcome] = []
    logged, told, number, position, session = 0, 0, 0, 0, 1
    for what, much in steps:
        if what == "done":
            number += 1
            outcomes: list[Outcome] = [Refused(number, 0, 1 + much % 2)] if much > 3 else []
            of.done(number, outcomes)
            kept += outcomes
        elif what == "record":
            assert of.record(0).outcomes == tuple([each for each in kept if each.number > logged])
            logged = number
        elif what == "hear":
            of.hear(min(much, of.decided))
            kept = [each for each in kept if each.number > min(much, of.decided)]
        elif what == "attach":
            session += 1
            heard = min(much, of.decided)
            of.attach(session, heard)
            kept, told = [each for each in kept if each.number > heard], heard
        else:
            position += 1
            of.gathered(position)
            before = of.decided
            of.committed(position)
            said = [message for _, message in out.take()]
            if number > before:
                expected = tuple([each for each in kept if told < each.number <= number])
                assert said == [Decided(number, expected)]
                told = number
        assert of._ranges == len(ranges_of(kept))
        out.take()
