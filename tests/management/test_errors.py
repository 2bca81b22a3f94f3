"""Refusals keep their kind over the control socket, and the protocol's become an operator's."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from pamqp import exceptions

from amqpd.management.asking import refusals
from amqpd.management.control import socket as control
from amqpd.management.control.answers import Commands
from amqpd.management.errors import (
    KINDS,
    BadArgument,
    Conflict,
    ManagementError,
    NotFound,
    NotPermitted,
    of_kind,
)

pytestmark = pytest.mark.trio


async def test_every_kind_is_the_same_on_the_other_side_of_the_socket(tmp_path: Path) -> None:
    async def refuse(arguments: dict[str, Any]) -> dict[str, Any]:
        raise of_kind(arguments["kind"], f"because it is {arguments['kind']}")

    async with trio.open_nursery() as nursery:
        await nursery.start(control.ControlServer(Commands({"refuse": refuse})).run, tmp_path)
        for kind, each in KINDS.items():
            with pytest.raises(ManagementError, match=rf"^because it is {kind}$") as refused:
                await trio.to_thread.run_sync(partial(control.call, tmp_path, "refuse", {"kind": kind}))
            assert type(refused.value) is each
        nursery.cancel_scope.cancel()


async def test_a_kind_of_a_newer_broker_is_a_refusal_all_the_same() -> None:
    assert type(of_kind("brand_new", "no")) is ManagementError


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (exceptions.AMQPNotFound, NotFound),
        (exceptions.AMQPAccessRefused, NotPermitted),
        (exceptions.AMQPNotAllowed, NotPermitted),
        (exceptions.AMQPResourceLocked, Conflict),
        (exceptions.AMQPPreconditionFailed, BadArgument),
        (exceptions.AMQPNotImplemented, BadArgument),
    ],
)
async def test_what_the_protocol_refuses_is_an_operators_refusal(
    raised: type[Exception], kind: type[ManagementError]
) -> None:
    with pytest.raises(ManagementError, match=r"^the words$") as refused, refusals():
        raise raised("the words")
    assert type(refused.value) is kind
