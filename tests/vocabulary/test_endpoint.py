"""Hosts and ports as text."""

from __future__ import annotations

import pytest

from amqpd.vocabulary.endpoint import Endpoint, parse_endpoint


@pytest.mark.parametrize(
    ("text", "endpoint", "again"),
    [
        ("a.example:5673", Endpoint("a.example", 5673), "a.example:5673"),
        (" 10.0.0.1:0 ", Endpoint("10.0.0.1", 0), "10.0.0.1:0"),
        ("[::1]:65535", Endpoint("::1", 65535), "[::1]:65535"),
        ("[fe80::1%eth0]:01", Endpoint("fe80::1%eth0", 1), "[fe80::1%eth0]:1"),
    ],
)
def test_what_an_operator_writes(text: str, endpoint: Endpoint, again: str) -> None:
    assert parse_endpoint(text) == endpoint
    assert str(endpoint) == again
    assert parse_endpoint(again) == endpoint


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "::1:1", "[::1]", "a:65536", "a:-1", "a b:1", "a:1:2"])
def test_what_is_no_endpoint(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be HOST:PORT, such as "):
        parse_endpoint(text)


@pytest.mark.parametrize(
    ("host", "every"),
    [("0.0.0.0", True), ("0", True), ("::", True), ("0:0::", True), ("::1", False), ("10.0.0.0", False)],
)
def test_every_interface_is_no_address(host: str, every: bool) -> None:
    assert Endpoint(host, 1).is_every_interface is every
