"""The table of RabbitMQ's routes says what is true of ours, and the comparison asks all of them."""

from __future__ import annotations

import re

import pytest

from tests.admin.asked import NEWER, READ
from tests.admin.conftest import Api
from tests.admin.rabbitmq_routes import MANAGEMENT, ROUTES


def normal(path: str) -> str:
    """Without the names of its variable parts, which are each broker's own."""
    return re.sub(r"\{[^}]+\}", "{}", path)


@pytest.fixture(scope="module")
def ours(api: Api) -> dict[str, set[str]]:
    """Methods by path."""
    document = api.get("/openapi.json")["paths"]
    return {
        normal(path.removeprefix("/api")): {each.upper() for each in methods} for path, methods in document.items()
    }


def test_it_is_all_of_them_and_each_once():
    assert len({route.path for route in MANAGEMENT}) == 118
    asked = [(route.path, method) for route in ROUTES for method in route.methods.split()]
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.methods} {route.path}")
def test_one_that_is_said_to_be_there_is_and_no_other(ours: dict[str, set[str]], route):
    found, wanted = ours.get(normal(route.path), set()), set(route.methods.split())
    assert (found & wanted) == (set() if route.why else wanted)


def test_all_that_only_read_are_asked_of_both():
    asked = [path.partition("?")[0] for path in READ + NEWER]
    missed = []
    for route in ROUTES:
        if "GET" in route.methods.split() and not route.why:
            form = re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route.path)))
            if not any(form.fullmatch(path) for path in asked):
                missed.append(route.path)
    assert missed == []
