"""What is otherwise where the default queue type of the virtual host is quorum, by RabbitMQ's own rules.

What comes in: nothing. What goes out: `why_different`, for a case.
Rules: 1. Each reason is RabbitMQ's rule for quorum queues, with the page of its documentation. 2. A case that is
named here must fail there: one that passes again fails the run (`conftest.py`). 3. A queue that is exclusive,
auto-delete or transient stays classic (https://www.rabbitmq.com/docs/vhosts#default-queue-type), so most cases are
not concerned.
Not here: the rules of quorum queues that are asked for by name (`test_ext_quorum.py`).
"""

from __future__ import annotations

PAGE = "https://www.rabbitmq.com/docs/quorum-queues#"
PRIORITY = f"RabbitMQ refuses x-max-priority for quorum queues: {PAGE}feature-matrix"
MODE = f"RabbitMQ refuses x-queue-mode and x-queue-version for quorum queues: {PAGE}feature-matrix"
ALONE = f"RabbitMQ ignores for quorum queues that a consumer wants to be alone: {PAGE}feature-matrix"
SHARED = f"RabbitMQ has no prefetch that consumers of a quorum queue share: {PAGE}global-qos"
RETURNED = f"RabbitMQ's quorum queues keep returned messages in the order of their return: {PAGE}repeated-requeues"
OVERFLOW = f"RabbitMQ ignores reject-publish-dlx for quorum queues, they drop their head: {PAGE}feature-matrix"
TYPE = "who names no type gets a quorum queue: https://www.rabbitmq.com/docs/vhosts#default-queue-type"

DIFFERENT = {
    "test_basic_consume::test_an_exclusive_consumer": ALONE,
    "test_basic_consume::test_requeue[reject backwards]": RETURNED,
    "test_ext_arguments::test_a_negative_number_is_refused[x-max-priority]": PRIORITY,
    "test_ext_arguments::test_a_negative_number_is_refused[x-queue-version]": MODE,
    "test_ext_arguments::test_the_bounds_are_accepted[{'x-max-priority': 0}]": PRIORITY,
    "test_ext_arguments::test_the_bounds_are_accepted[{'x-max-priority': 255}]": PRIORITY,
    "test_ext_arguments::test_more_than_255_priorities_are_refused": PRIORITY,
    "test_ext_arguments::test_mode_and_version_are_accepted": MODE,
    "test_ext_arguments::test_an_unknown_queue_mode_is_refused": MODE,
    "test_ext_arguments::test_an_unknown_queue_version_is_refused": MODE,
    "test_ext_arguments::test_a_classic_queue_refuses_what_is_of_other_types": TYPE,
    "test_ext_consumers::test_an_exclusive_consumer_refuses_others": ALONE,
    "test_ext_consumers::test_an_exclusive_consumer_needs_to_be_the_first": ALONE,
    "test_ext_consumers::test_a_global_prefetch_is_shared": SHARED,
    "test_ext_consumers::test_both_kinds_of_prefetch_hold": SHARED,
    "test_ext_dead_letter::test_a_message_refused_by_length": OVERFLOW,
    "test_ext_length::test_a_full_queue_nacks[reject-publish-dlx]": OVERFLOW,
    "test_ext_policies::test_apply_to_a_type_of_queues": TYPE,
    "test_ext_redeclare::test_the_queue_type_is_compared[quorum-none]": TYPE,
    "test_ext_redeclare::test_the_queue_type_is_compared[none-quorum]": TYPE,
    "test_prefetch::test_prefetch_of_the_channel": SHARED,
    "test_prefetch::test_both_prefetches": SHARED,
}
"""`file::test` or `file::test[case]`: why"""
DIFFERENT |= {
    f"test_ext_arguments::test_a_number_has_to_be_an_integer[{kind}-x-max-priority]": PRIORITY
    for kind in ("longstr", "bool", "void", "array", "table", "timestamp")
}
DIFFERENT |= {
    f"test_ext_redeclare::{test}[{argument}]": why
    for test in (
        "test_the_same_arguments_again",
        "test_another_value_is_refused",
        "test_a_missing_argument_is_refused",
        "test_an_additional_argument_is_refused",
    )
    for argument, why in (("x-max-priority", PRIORITY), ("x-queue-mode", MODE))
}
DIFFERENT |= {
    f"test_ext_priority::{test}": PRIORITY
    for test in (
        "test_higher_priorities_come_first",
        "test_equal_priorities_keep_their_order",
        "test_no_priority_is_zero",
        "test_priorities_above_the_maximum_count_as_it",
        "test_a_maximum_of_zero",
        "test_all_priorities",
        "test_a_requeued_message_goes_to_its_place",
        "test_prefetched_messages_are_not_overtaken",
        "test_counting_and_purging",
        "test_a_length_limit_drops_the_head",
        "test_low_priorities_expire_behind_high_ones",
        "test_delivery_modes_do_not_matter",
        "test_a_dead_letter_keeps_its_priority",
    )
}


def why_different(case: str) -> str | None:
    """`case`: an id of pytest's. None: it has to pass here too."""
    named = case.removeprefix("conformance/").replace(".py::", "::")
    return DIFFERENT.get(named) or DIFFERENT.get(named.partition("[")[0])
