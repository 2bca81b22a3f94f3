"""The text of the setting `cluster_store`."""

from __future__ import annotations

import pytest

from amqpd.vocabulary.store_address import StoreAddress, parse_store_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("etcd://a", StoreAddress(("a:2379",), False, "amqpd")),
        ("etcd://a,b:1, [::1]:2/", StoreAddress(("a:2379", "b:1", "[::1]:2"), False, "amqpd")),
        ("etcds://10.0.0.1,[fe80::1]/shop-1", StoreAddress(("10.0.0.1:2379", "[fe80::1]:2379"), True, "shop-1")),
    ],
)
def test_an_address_is_read(text: str, address: StoreAddress) -> None:
    assert parse_store_address(text) == address


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b", "must be etcd://HOST"),
        ("http://a", "must be etcd://HOST"),
        ("etcd://", "must be etcd://HOST"),
        ("etcd://a/b/c", "must be etcd://HOST"),
        ("etcd://u:p@a", "user and password are cluster_store_user and cluster_store_password"),
        ("etcd://a,,b", "'' is no host"),
        ("etcd://a:99999", "99999 is no port"),
        ("etcd://a,a:2379", "twice"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_store_address(text)
