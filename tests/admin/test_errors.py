"""Refusals of use cases, as clients of the management API are told them: each kind has its status, and its sentence
is the reason."""

from __future__ import annotations

import json

import pytest
from fastapi import Request

from amqpd.management.errors import KINDS, AtAnotherNode, ManagementError, NotFound
from amqpd_admin.answers import of_use_case

pytestmark = pytest.mark.trio

SENTENCE = "the queue 'orders' is in the way"
WANTED = {
    "failed": (500, "internal_server_error"),
    "bad_argument": (400, "bad_request"),
    "already_exists": (400, "bad_request"),
    "refused": (401, "not_authorised"),
    "conflict": (400, "bad_request"),
    "unavailable": (503, "service_unavailable"),
}


async def told(error: ManagementError, method: str = "GET") -> tuple[int, str, str]:
    answer = await of_use_case(Request({"type": "http", "method": method, "headers": [], "path_params": {}}), error)
    said = json.loads(bytes(answer.body))
    return answer.status_code, said["error"], said["reason"]


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"not_found"}))
async def test_each_kind_has_its_status_and_its_sentence_is_the_reason(kind: str):
    assert await told(KINDS[kind](SENTENCE)) == (*WANTED[kind], SENTENCE)


async def test_who_looks_for_what_is_not_there_is_told_what_rabbitmq_says():
    assert await told(NotFound(SENTENCE)) == (404, "Object Not Found", "Not Found")
    assert await told(NotFound(SENTENCE), "POST") == (404, "not_found", SENTENCE)


async def test_who_asks_the_wrong_node_is_told_the_right_one():
    assert await told(AtAnotherNode("node 'b@x' leads it")) == (404, "not_found", "node 'b@x' leads it")
