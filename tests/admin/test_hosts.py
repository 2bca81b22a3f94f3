"""Under which names browsers are answered, and that other programs do not notice."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trustme

from amqpd.config import Settings
from amqpd_admin.certificates import names_of
from amqpd_admin.hosts import Hosts, is_of_browser
from tests.admin.conftest import Api

FORBIDDEN = "evil.example"
COOKIE = {b"cookie": b"x=y"}


def refused(host: str, **settings: Any) -> bool:
    return Hosts(Settings(**settings)).refuse({**COOKIE, b"host": host.encode("latin-1")}) is not None


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:15672",
        "localhost.",
        "localhost.:15672",
        "127.0.0.1",
        "127.0.0.1:15672",
        "192.0.2.7:80",
        "[::1]",
        "[::1]:15672",
        "[fe80::1%25eth0]:15672",
        socket.gethostname(),
        f"{socket.gethostname().upper()}.:15672",
    ],
)
def test_names_that_are_this_machine_s(host: str):
    assert not refused(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        FORBIDDEN,
        f"{FORBIDDEN}:15672",
        "localhost.evil.example",
        "evil-localhost",
        "127.0.0.1.evil.example",
        "[::1].evil.example",
        "[evil.example]",
        "::1",
        "localhost:80:80",
        "localhost:x",
        "user@localhost",
        "localhost..",
        "[",
        "\xff",
    ],
)
def test_names_that_are_not(host: str):
    assert refused(host)


def test_no_host_at_all():
    assert Hosts(Settings()).refuse(COOKIE) is not None


def test_names_of_the_setting():
    http = {"hosts": ["Broker.Example.", "*.inside.example"]}
    assert not refused("broker.example:15672", http=http)
    assert not refused("a.inside.example", http=http)
    assert refused("a.b.inside.example", http=http)
    assert refused("inside.example", http=http)
    assert refused("a.broker.example", http=http)


def test_the_complete_name_is_learnt_later():
    hosts = Hosts(Settings())
    hosts.add("Node.Dns.Example")
    assert hosts.refuse({**COOKIE, b"host": b"node.dns.example"}) is None


def test_names_of_the_certificate(tmp_path: Path):
    pem = tmp_path / "server.pem"
    certificate = trustme.CA().issue_cert("shown.example", "*.many.example", "127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(pem))
    assert names_of(pem) == ["shown.example", "*.many.example"]
    tls: dict[str, Any] = {"http": {"tls": True}, "tls": {"certificate": pem}}
    assert not refused("shown.example:15671", **tls)
    assert not refused("one.many.example", **tls)
    assert refused(FORBIDDEN, **tls)
    assert refused("shown.example", tls={"certificate": pem}), "the API is without TLS"


@pytest.mark.parametrize(
    ("name", "value", "browser"),
    [
        (b"sec-fetch-site", b"same-origin", True),
        (b"sec-fetch-mode", b"cors", True),
        (b"origin", b"http://evil.example", True),
        (b"cookie", b"x=y", True),
        (b"referer", b"http://evil.example/", True),
        (b"accept-language", b"en", True),
        (b"user-agent", b"Mozilla/5.0 (X11; Linux x86_64)", True),
        (b"user-agent", b"curl/8.5.0", False),
        (b"authorization", b"Basic x", False),
        (b"accept", b"*/*", False),
    ],
)
def test_what_a_browser_sends(name: bytes, value: bytes, browser: bool):
    """Without TLS it leaves out Sec-Fetch-*, and Origin of a GET to the same origin: a page whose name was made to
    mean this machine asks so, with a password that everybody knows."""
    assert is_of_browser({name: value}) is browser


@pytest.mark.parametrize("path", ["/api/whoami", "/", "/metrics", "/api/amqpd/session"])
def test_a_browser_under_another_name_is_refused(path: str, api: Api):
    headers = {"host": f"{FORBIDDEN}:{api.port}", "accept-language": "en"}
    answer = httpx2.get(api.url + path, headers=headers, auth=("guest", "guest"))
    assert answer.status_code == 421
    assert answer.json() == {
        "error": "misdirected_request",
        "reason": f"no browser is answered under the name '{FORBIDDEN}:{api.port}': if it is this broker's, "
        "add it to http.hosts",
    }


@pytest.mark.parametrize("host", [FORBIDDEN, "rabbit", ""])
def test_another_program_is_answered_under_any_name(host: str, api: Api):
    answer = api("GET", "/whoami", headers={"host": host})
    assert answer.status_code == 200
    assert api("PUT", "/queues/%2F/of-a-tool", {}, headers={"host": host}).status_code in (201, 204)


def test_a_browser_is_answered_under_ours(api: Api):
    for host in (f"localhost:{api.port}", f"127.0.0.1:{api.port}", socket.gethostname()):
        assert api("GET", "/whoami", headers={"host": host, "accept-language": "en"}).status_code == 200
