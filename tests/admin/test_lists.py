"""Pages, order and columns of lists, without a broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.requests import Request

from amqpd_admin.answers import Refusal
from amqpd_admin.lists import Listing, answer
from amqpd_admin.views import COLUMNS_LENGTH_MAX, columns_in, some_columns, view_of

QUEUES = [
    {"vhost": "/", "name": "orders", "messages": 5, "message_stats": {"publish": 9}},
    {"vhost": "/", "name": "Invoices", "messages": 70},
    {"vhost": "a", "name": "orders.old", "messages": 600, "message_stats": {"publish": 3}},
]


async def listed(query: str = "", made: list[str] | None = None) -> Any:
    request = Request({"type": "http", "query_string": query.encode(), "headers": []})

    def whole(row: dict[str, Any]) -> dict[str, Any] | None:
        if made is not None:
            made.append(row["name"])
        return row

    listing = Listing(QUEUES, lambda row: {"vhost": row["vhost"], "name": row["name"]}, whole)
    return json.loads(bytes((await answer(request, listing)).body))


async def names(query: str = "") -> list[str]:
    found = await listed(query)
    return [row["name"] for row in (found if isinstance(found, list) else found["items"])]


@pytest.mark.trio
async def test_all_of_them_by_virtual_host_and_name():
    assert await names() == ["Invoices", "orders", "orders.old"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("sort=messages", ["orders", "Invoices", "orders.old"]),
        ("sort=messages&sort_reverse=true", ["orders.old", "Invoices", "orders"]),
        ("sort=message_stats.publish", ["Invoices", "orders.old", "orders"]),
        ("sort=", ["Invoices", "orders", "orders.old"]),
        ("sort=name&sort_reverse=true", ["orders.old", "orders", "Invoices"]),
        ("page=1&page_size=2&sort=messages&sort_reverse=true", ["orders.old", "Invoices"]),
        ("page=2&page_size=2", ["orders.old"]),
        ("page=1&name=ORDERS", ["orders", "orders.old"]),
        ("page=1&name=^orders$&use_regex=true", ["orders"]),
        ("name=orders", ["Invoices", "orders", "orders.old"]),
    ],
)
@pytest.mark.trio
async def test_order_pages_and_names(query, found):
    assert await names(query) == found


@pytest.mark.trio
async def test_a_page_says_what_it_is_of():
    page = await listed("page=1&page_size=1&name=orders")
    del page["items"]
    assert page == {
        "page": 1,
        "page_size": 1,
        "page_count": 2,
        "item_count": 1,
        "filtered_count": 2,
        "total_count": 3,
    }


@pytest.mark.trio
async def test_whole_rows_are_made_of_the_page_alone():
    made: list[str] = []
    await listed("page=1&page_size=1", made)
    assert made == ["Invoices"]


@pytest.mark.trio
async def test_whole_rows_are_made_of_all_to_sort_by_what_is_in_no_other():
    made: list[str] = []
    await listed("page=1&page_size=1&sort=messages", made)
    assert len(made) == 3


@pytest.mark.trio
async def test_columns():
    assert await listed("columns=name,message_stats.publish") == [
        {"name": "Invoices"},
        {"name": "orders", "message_stats": {"publish": 9}},
        {"name": "orders.old", "message_stats": {"publish": 3}},
    ]


@pytest.mark.trio
async def test_columns_of_a_page():
    assert (await listed("page=1&page_size=1&columns=name"))["items"] == [{"name": "Invoices"}]


def test_columns_look_into_lists():
    row = {"a": [{"b": 1, "c": 2}], "d": 3}
    assert some_columns(row, columns_in("a.b")) == {"a": [{"b": 1}]}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        (",.,", {}),
        ("a,b", {"a": None, "b": None}),
        ("a.b,a.c", {"a": {"b": None, "c": None}}),
        ("a.b,a", {"a": None}),
        ("a,a.b.c", {"a": None}),
        ("a..b.", {"a": {"b": None}}),
    ],
)
def test_what_columns_say(text, wanted):
    assert columns_in(text) == wanted


@pytest.mark.trio
async def test_columns_may_name_all_that_a_row_has():
    every = ",".join(f"a_column_with_a_long_name_{number}" for number in range(40))
    assert (await listed(f"columns=name,{every}"))[0].keys() == {"name"}


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("page=0", "invalid_pagination_parameters"),
        ("page=1&page_size=501", "invalid_pagination_parameters"),
        ("page=1&page_size=0", "invalid_pagination_parameters"),
        ("page=-1", "invalid_pagination_parameters"),
        ("page=x", "bad_request"),
        ("page=9&page_size=2", "page_out_of_range"),
        ("page=1&use_regex=true&name=(", "bad_request"),
        ("page=1&use_regex=true&name=(?!a)", "bad_request"),
    ],
)
@pytest.mark.trio
async def test_what_makes_no_sense_is_refused(query, error):
    with pytest.raises(Refusal) as raised:
        await listed(query)
    assert raised.value.response.status_code == 400
    assert json.loads(bytes(raised.value.response.body))["error"] == error


@pytest.mark.trio
async def test_no_expression_takes_time_without_end():
    """Python's own engine would not come back from this one."""
    QUEUES.append({"vhost": "z", "name": "a" * 250 + "b", "messages": 0})
    try:
        assert await names("page=1&use_regex=true&name=(a%2B)%2B$") == []
    finally:
        QUEUES.pop()


def test_a_view_has_defaults():
    assert view_of({}).page is None
    assert view_of({"page": "3"}).page_size == 100


@pytest.mark.trio
@pytest.mark.parametrize("name", ["columns", "sort", "name"])
async def test_what_is_long_beyond_reason_is_refused(name):
    with pytest.raises(Refusal):
        await listed(f"page=1&{name}=" + "a." * (COLUMNS_LENGTH_MAX if name == "columns" else 300))


@pytest.mark.trio
async def test_an_expression_that_would_take_long_for_each_name_is_refused():
    with pytest.raises(Refusal):
        await listed("page=1&use_regex=true&name=(a%3F){1000}")
