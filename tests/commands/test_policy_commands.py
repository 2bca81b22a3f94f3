"""`amqpd policy`, `operator-policy`, `parameter`, `global-parameter` and `limits`, run as people run them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from click.testing import Result

from amqpd.management.metadata.stored import StoredMetadata
from amqpd.topology.limit_keys import limit_of, limits_of
from amqpd.vocabulary.records import ParameterRecord, PolicyRecord

Ok = Callable[..., str]


@pytest.mark.parametrize("kind", ["policy", "operator-policy"])
def test_a_policy_is_set_listed_and_cleared(ok: Ok, data_dir: Path, kind: str) -> None:
    words = ("short", "^q", '{"message-ttl": 5, "max-length": 1}', "--priority", "-3", "--apply-to", "queues")
    ok(kind, "set", "/", *words)
    operator = kind == "operator-policy"
    record = PolicyRecord("/", "short", "^q", "queues", {"message-ttl": 5, "max-length": 1}, -3, operator)
    topology = trio.run(StoredMetadata(data_dir).read)
    assert topology.vhosts["/"].policies.records() == [record]
    applied = topology.policy_of("queue", "/", "q1")
    assert (applied.operator_name if operator else applied.name) == "short"
    ok(kind, "set", "/", "first", "", '{"expires": 1}')
    assert ok(kind, "list").splitlines() == [
        "vhost  name   pattern  apply-to  definition                           priority",
        '/      first           all       {"expires": 1}                       0',
        '/      short  ^q       queues    {"message-ttl": 5, "max-length": 1}  -3',
    ]
    assert json.loads(ok(kind, "list", "--vhost", "/", "--json"))[1] == {
        "vhost": "/",
        "name": "short",
        "pattern": "^q",
        "apply-to": "queues",
        "definition": {"message-ttl": 5, "max-length": 1},
        "priority": -3,
    }
    ok(kind, "clear", "/", "short")
    ok(kind, "clear", "/", "first")
    assert trio.run(StoredMetadata(data_dir).read).vhosts["/"].policies.records() == []


def test_the_two_kinds_of_policies_are_apart(ok: Ok, refused: Ok) -> None:
    ok("policy", "set", "/", "p", "", '{"dead-letter-exchange": "d"}')
    assert json.loads(ok("operator-policy", "list", "--json")) == []
    assert refused("operator-policy", "clear", "/", "p") == "there is no operator policy 'p' in virtual host '/'"
    assert "cannot have the key 'dead-letter-exchange'" in refused(
        "operator-policy", "set", "/", "p", "", '{"dead-letter-exchange": "d"}'
    )


def test_mistakes_about_policies(refused: Ok, data_dir: Path) -> None:
    valid = '{"expires": 1}'
    assert refused("policy", "set", "no", "p", "", valid) == "there is no virtual host 'no'"
    assert refused("policy", "clear", "/", "p") == "there is no policy 'p' in virtual host '/'"
    assert refused("policy", "list", "--vhost", "no") == "there is no virtual host 'no'"
    assert refused("policy", "set", "/", "", "", valid) == "a policy needs a name that is not empty"
    assert refused("policy", "set", "/", "p", "", '{"colour": "red"}') == (
        "the policy is not valid: there is no policy key 'colour'"
    )
    assert "is not a valid queue expiry" in refused("policy", "set", "/", "p", "", '{"expires": 0}')
    assert "apply-to 'all queues' unrecognised" in refused(
        "policy", "set", "/", "p", "", valid, "--apply-to", "all queues"
    )
    assert "should be regular expression" in refused("policy", "set", "/", "p", "(", valid)
    assert "the definition is not JSON" in refused("policy", "set", "/", "p", "", "{expires: 1}")
    assert "no number in JSON" in refused("policy", "set", "/", "p", "", '{"expires": NaN}')
    assert "must be a dictionary" in refused("policy", "set", "/", "p", "", "[]")
    assert trio.run(StoredMetadata(data_dir).read).vhosts["/"].policies.records() == []


def test_policies_and_parameters_go_with_their_vhost_and_global_ones_stay(ok: Ok, data_dir: Path) -> None:
    ok("vhost", "add", "v")
    ok("policy", "set", "v", "p", "", '{"expires": 1}')
    ok("operator-policy", "set", "v", "p", "", '{"expires": 1}')
    ok("limits", "set-vhost", "v", "--max-queues", "1")
    ok("global-parameter", "set", "cluster_name", '"c"')
    ok("vhost", "delete", "v")
    ok("vhost", "add", "v")
    topology = trio.run(StoredMetadata(data_dir).read)
    assert (topology.vhosts["v"].policies.records(), topology.vhosts["v"].parameters) == ([], {})
    assert list(topology.global_parameters) == [("", "cluster_name")]


def test_parameters_are_set_listed_and_cleared(ok: Ok, data_dir: Path) -> None:
    ok("parameter", "set", "/", "unroutable", "default", '"nack"')
    ok("parameter", "set", "/", "vhost-limits", "limits", '{"max-queues": 9}')
    held = trio.run(StoredMetadata(data_dir).read).vhosts["/"].parameters
    assert held["unroutable", "default"] == ParameterRecord("/", "unroutable", "default", "nack")
    assert ok("parameter", "list").splitlines() == [
        "vhost  component     name     value",
        '/      unroutable    default  "nack"',
        '/      vhost-limits  limits   {"max-queues": 9}',
    ]
    assert json.loads(ok("parameter", "list", "--vhost", "/", "--json"))[1]["value"] == {"max-queues": 9}
    ok("parameter", "clear", "/", "unroutable", "default")
    assert list(trio.run(StoredMetadata(data_dir).read).vhosts["/"].parameters) == [("vhost-limits", "limits")]


def test_global_parameters_are_set_listed_and_cleared(ok: Ok, refused: Ok, data_dir: Path) -> None:
    ok("global-parameter", "set", "tags", '{"region": "eu"}')
    ok("global-parameter", "set", "a", "[1, null]")
    assert ok("global-parameter", "list").splitlines() == [
        "name  value",
        "a     [1, null]",
        'tags  {"region": "eu"}',
    ]
    ok("global-parameter", "clear", "a")
    assert json.loads(ok("global-parameter", "list", "--json")) == [{"name": "tags", "value": {"region": "eu"}}]
    assert refused("global-parameter", "clear", "a") == "there is no global parameter 'a'"
    assert json.loads(ok("parameter", "list", "--json")) == []


def test_mistakes_about_parameters(refused: Ok, data_dir: Path) -> None:
    def sentence(*words: str) -> str:
        return refused("parameter", "set", "/", *words).removeprefix("the parameter is not valid: ")

    assert sentence("colour", "c", "1") == "component colour not found"
    assert sentence("policy", "p", "{}") == "policies may not be set using this method"
    assert sentence("operator_policy", "p", "{}") == "policies may not be set using this method"
    assert (
        sentence("unroutable", "other", '"drop"') == "the one parameter of the component unroutable is named default"
    )
    assert "is not drop, nack or the name" in sentence("unroutable", "default", "1")
    assert "is named limits" in sentence("vhost-limits", "l", "{}")
    assert sentence("vhost-limits", "limits", "1") == "limits not a list 1"
    assert 'Unrecognised terms [{<<"max-q">>,1}] in limits' in sentence("vhost-limits", "limits", '{"max-q": 1}')
    assert sentence("vhost-limits", "limits", '{"max-queues": "1"}') == (
        'max-queues should be a number, actually was <<"1">>'
    )
    assert "is not JSON" in refused("parameter", "set", "/", "unroutable", "default", "nack")
    assert refused("parameter", "set", "no", "unroutable", "default", '"drop"') == "there is no virtual host 'no'"
    for component in ("shovel", "federation-upstream", "mqtt-something"):
        assert f"component {component} not found" in refused("parameter", "set", "/", component, "s", "{}")
    assert "there is no parameter 's' of shovel" in refused("parameter", "clear", "/", "shovel", "s")
    assert trio.run(StoredMetadata(data_dir).read).vhosts["/"].parameters == {}


def test_limits_are_set_one_by_one_listed_and_cleared(ok: Ok, data_dir: Path) -> None:
    ok("limits", "set-vhost", "/", "--max-queues", "10", "--publish-bytes", "10MB")
    ok("limits", "set-vhost", "/", "--max-connections", "0")
    ok("limits", "set-user", "guest", "--max-channels", "-1", "--publish-rate", "1000", "--publish-bytes", "-1")
    ok("user", "passwd", "guest", "new")
    topology = trio.run(StoredMetadata(data_dir).read)
    assert limits_of(topology, "vhost", "/") == {"max-queues": 10, "publish-bytes": 10**7, "max-connections": 0}
    assert limits_of(topology, "user", "guest") == {"max-channels": -1, "publish-rate": 1000, "publish-bytes": -1}
    assert limit_of(topology, "vhost", "/", "max-connections") == 0
    assert limit_of(topology, "user", "guest", "max-channels") is None
    assert limit_of(topology, "user", "guest", "max-connections") is None
    assert limit_of(topology, "user", "nobody", "max-channels") is None
    assert ok("limits", "list").splitlines() == [
        "of     name   limit            value",
        "vhost  /      max-connections  0",
        "vhost  /      max-queues       10",
        "vhost  /      publish-bytes    10000000",
        "user   guest  max-channels     -1",
        "user   guest  publish-bytes    -1",
        "user   guest  publish-rate     1000",
    ]
    assert len(json.loads(ok("limits", "list", "--user", "guest", "--json"))) == 3
    ok("limits", "clear-vhost", "/", "max-queues", "publish-bytes")
    assert json.loads(ok("limits", "list", "--vhost", "/", "--json")) == [
        {"of": "vhost", "name": "/", "limit": "max-connections", "value": 0}
    ]
    ok("limits", "clear-vhost", "/")
    ok("limits", "clear-user", "guest")
    topology = trio.run(StoredMetadata(data_dir).read)
    assert (topology.vhosts["/"].parameters, topology.users["guest"].limits) == ({}, {})


def test_mistakes_about_limits(refused: Ok, run: Callable[..., Result], data_dir: Path) -> None:
    assert refused("limits", "set-vhost", "no", "--max-queues", "1") == "there is no virtual host 'no'"
    assert refused("limits", "set-user", "no", "--max-channels", "1") == "there is no user 'no'"
    assert refused("limits", "clear-user", "no") == "there is no user 'no'"
    assert refused("limits", "list", "--user", "no") == "there is no user 'no'"
    assert "publishers would wait for ever" in refused("limits", "set-user", "guest", "--publish-rate", "0")
    assert "is more than" in refused("limits", "set-vhost", "/", "--max-queues", str(2**60))
    assert "'max-channels' is no limit of a virtual host" in refused("limits", "clear-vhost", "/", "max-channels")
    for words in ((), ("--max-queues", "-2"), ("--publish-bytes", "10 parsecs"), ("--max-channels", "1")):
        assert run("limits", "set-vhost", "/", *words).exit_code == 2
    assert trio.run(StoredMetadata(data_dir).read).vhosts["/"].parameters == {}
