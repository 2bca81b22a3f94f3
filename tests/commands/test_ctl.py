"""`amqpd ctl`: rabbitmqctl's words, output and exit codes, on a stopped broker. The norm is what 3.10 printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from amqpd.commands.ctl import COMMANDS, REFUSED
from amqpd.commands.ctl.output import Arguments, Document, Tags, term

Run = Callable[..., Result]
Ok = Callable[..., str]


@pytest.fixture
def ctl(run: Run) -> Run:
    return lambda *words, stdin=None: run("ctl", *words, stdin=stdin)


def test_users_as_rabbitmqctl_says_them(ctl: Run) -> None:
    assert ctl("add_user", "alice", "secret").stdout.splitlines()[0] == 'Adding user "alice" ...'
    again = ctl("add_user", "alice", "secret")
    assert again.exit_code == 70
    assert again.stderr.startswith("Error:\n")
    assert ctl("authenticate_user", "alice", "secret").stdout.splitlines()[-1] == "Success"
    wrong = ctl("authenticate_user", "alice", "wrong")
    assert (wrong.exit_code, wrong.stderr.splitlines()[1]) == (65, 'Error: failed to authenticate user "alice"')
    assert ctl("authenticate_user", "nobody", "x").exit_code == 65
    assert ctl("change_password", "alice", "other").exit_code == 0
    assert ctl("authenticate_user", "alice", "other").exit_code == 0
    assert ctl("set_user_tags", "alice", "monitoring", "policymaker").stdout == (
        'Setting tags for user "alice" to [monitoring, policymaker] ...\n'
    )
    assert ctl("list_users").stdout == (
        "Listing users ...\nuser\ttags\nalice\t[monitoring, policymaker]\nguest\t[administrator]\n"
    )
    assert ctl("list_users", "-q").stdout.startswith("user\ttags\n")
    assert ctl("-s", "list_users").stdout == "alice\t[monitoring, policymaker]\nguest\t[administrator]\n"
    assert ctl("list_users", "--no-table-headers").stdout.splitlines()[1].startswith("alice")
    assert ctl("list_users", "--formatter", "json").stdout == (
        '[\n{"user":"alice","tags":["monitoring","policymaker"]}\n,{"user":"guest","tags":["administrator"]}\n]\n'
    )
    assert ctl("list_users", "--formatter=csv").stdout == (
        '"user","tags"\n"alice","[monitoring, policymaker]"\n"guest","[administrator]"\n'
    )
    assert ctl("delete_user", "alice").exit_code == 0
    assert ctl("delete_user", "alice").exit_code == 67


def test_a_password_is_read_from_standard_input(ctl: Run) -> None:
    assert ctl("add_user", "bob", stdin="one line\n").exit_code == 0
    assert ctl("authenticate_user", "bob", "one line").exit_code == 0
    assert ctl("clear_password", "bob").exit_code == 0
    assert ctl("authenticate_user", "bob", "one line").exit_code == 65


def test_permissions_as_rabbitmqctl_says_them(ctl: Run) -> None:
    ctl("add_vhost", "orders")
    assert ctl("add_vhost", "orders").exit_code == 0, "one that is there is no error"
    assert ctl("set_permissions", "-p", "orders", "guest", "^a", "^b", ".*").stdout == (
        'Setting permissions for user "guest" in vhost "orders" ...\n'
    )
    assert ctl("-p", "orders", "list_permissions").stdout.splitlines()[1:] == [
        "user\tconfigure\twrite\tread",
        "guest\t^a\t^b\t.*",
    ]
    assert ctl("list_user_permissions", "guest").stdout.splitlines()[2:] == ["/\t.*\t.*\t.*", "orders\t^a\t^b\t.*"]
    assert ctl("set_permissions", "-p", "nowhere", "guest", "a", "b", "c").exit_code == 69
    assert ctl("set_topic_permissions", "-p", "orders", "guest", "amq.topic", "^x", "^y").exit_code == 0
    assert ctl("list_topic_permissions", "-p", "orders", "-q").stdout.splitlines()[1] == "guest\tamq.topic\t^x\t^y"
    for _ in range(2):
        assert ctl("clear_topic_permissions", "-p", "orders", "guest", "amq.topic").exit_code == 0
        assert ctl("clear_permissions", "-p", "orders", "guest").exit_code == 0
    assert ctl("clear_permissions", "-p", "nowhere", "guest").exit_code == 69
    assert ctl("delete_vhost", "orders").exit_code == 0
    assert ctl("delete_vhost", "orders").exit_code == 65


def test_virtual_hosts_and_their_limits(ctl: Run) -> None:
    ctl("add_vhost", "shop", "--description", "the shop", "--tags", "a,b", "--default-queue-type", "quorum")
    listed = ctl("list_vhosts", "name", "description", "tags", "default_queue_type").stdout
    assert "shop\tthe shop\t[a, b]\tquorum" in listed.splitlines()
    unknown = ctl("list_vhosts", "nonsense")
    assert unknown.exit_code == 64
    assert "Info key(s) nonsense are not supported" in unknown.stderr
    assert ctl("set_vhost_limits", "-p", "shop", '{"max-connections":5}').exit_code == 0
    assert ctl("list_vhost_limits", "-p", "shop").stdout.splitlines()[1] == '{"max-connections":5}'
    assert ctl("list_vhost_limits", "--global").stdout.splitlines()[1:] == [
        "vhost\tlimits",
        'shop\t{"max-connections":5}',
    ]
    assert ctl("clear_vhost_limits", "-p", "shop").exit_code == 0
    assert ctl("set_user_limits", "guest", '{"max-channels":7}').exit_code == 0
    assert ctl("list_user_limits").stdout.splitlines()[1] == '{"max-channels":7}'
    assert ctl("clear_user_limits", "guest", "all").exit_code == 0
    assert ctl("list_user_limits", "--user", "guest").stdout.splitlines()[1] == "{}"


@pytest.mark.parametrize(("name", "listed"), [("policy", "policies"), ("operator_policy", "operator_policies")])
def test_policies_as_rabbitmqctl_says_them(ctl: Run, name: str, listed: str) -> None:
    words = ("--priority", "3", "--apply-to", "queues", "p", "^q", '{"max-length":9}')
    assert ctl(f"set_{name}", *words).stdout.endswith(
        '"p" for pattern "^q" to "{"max-length":9}" with priority "3" for vhost "/" ...\n'
    )
    assert ctl(f"list_{listed}", "-q").stdout.splitlines() == [
        "vhost\tname\tpattern\tapply-to\tdefinition\tpriority",
        '/\tp\t^q\tqueues\t{"max-length":9}\t3',
    ]
    [row] = json.loads(ctl(f"list_{listed}", "--formatter", "json").stdout)
    assert row["definition"] == '{"max-length":9}', "a text, as rabbitmqctl has it"
    assert ctl(f"set_{name}", "p", "^q", '{"nonsense":1}').exit_code == 69
    assert ctl(f"set_{name}", "p", "^q", "{").exit_code == 69
    assert ctl(f"clear_{name}", "p").exit_code == 0
    assert ctl(f"clear_{name}", "p").exit_code == 69


def test_parameters(ctl: Run) -> None:
    assert ctl("set_global_parameter", "mine", '{"a":1}').exit_code == 0
    assert ctl("list_global_parameters", "-q").stdout == 'name\tvalue\nmine\t{"a":1}\n'
    assert ctl("clear_global_parameter", "mine").exit_code == 0
    assert ctl("clear_global_parameter", "mine").exit_code == 69
    assert ctl("set_cluster_name", "shops").exit_code == 0
    assert '"shops"' in ctl("list_global_parameters", "-q").stdout


def test_definitions_go_out_and_come_back(ctl: Run, tmp_path: Path) -> None:
    ctl("add_vhost", "orders")
    file = tmp_path / "all.json"
    assert ctl("export_definitions", str(file)).exit_code == 0
    assert "orders" in [each["name"] for each in json.loads(ctl("export_definitions", "-").stdout)["vhosts"]]
    ctl("delete_vhost", "orders")
    assert ctl("import_definitions", str(file)).exit_code == 0
    assert "orders" in ctl("list_vhosts", "-s").stdout.splitlines()
    assert ctl("import_definitions", str(tmp_path / "none.json")).exit_code == 65
    queue = {"vhost": "/", "name": "q", "arguments": {"x-message-ttl": "60000"}}
    file.write_text(json.dumps({"vhosts": [{"name": "bills"}], "queues": [queue]}))
    refused = ctl("import_definitions", str(file))
    assert refused.exit_code == 65
    assert "invalid arg 'x-message-ttl' for queue 'q' in vhost '/'" in refused.stderr
    assert "bills" not in ctl("list_vhosts", "-s").stdout.splitlines()
    assert ctl("export_definitions", str(tmp_path / "no" / "all.json")).exit_code == 65


def test_wrong_words_end_with_64_and_say_what_is_right(ctl: Run) -> None:
    missing = ctl("add_user")
    assert (missing.exit_code, missing.stderr.splitlines()[0][:35]) == (64, "Error (argument validation): Missin")
    assert ctl("list_users", "--nonsense").exit_code == 64
    near = ctl("list_queue")
    assert near.exit_code == 64
    assert near.stderr == "\nCommand 'list_queue' not found.\nDid you mean 'list_queues'?\n"
    assert "add_user [OPTIONS] USERNAME" in ctl("help", "add_user").stdout


def test_what_amqpd_has_not_is_refused_with_a_reason(ctl: Run) -> None:
    assert not set(REFUSED) & set(COMMANDS)
    for name in REFUSED:
        refused = ctl(name, "word")
        assert refused.exit_code == 69
        assert refused.stderr.startswith(f"Error:\n'{name}' is not here: ")


def test_lists_of_what_is_open_need_a_broker_that_runs(ctl: Run) -> None:
    refused = ctl("list_queues", "-q")
    assert refused.exit_code == 69
    assert "no broker runs on" in refused.stderr
    assert ctl("list_queues", "nonsense").exit_code == 64


def test_waiting_for_a_broker_ends(ctl: Run) -> None:
    ended = ctl("await_startup", "-t", "0.01")
    assert ended.exit_code == 65
    assert "no broker answers after 0.01 seconds" in ended.stderr


def test_values_are_written_as_erlang_would() -> None:
    assert term(None) == ""
    assert term(True) == "true"
    assert term(Tags(["a", "b"])) == "[a, b]"
    assert term(Arguments({"x-max-length": 5, "x-queue-type": "quorum", "x-flag": True, "x-list": [1, "a"]})) == (
        '[{"x-max-length",5},{"x-queue-type","quorum"},{"x-flag",true},{"x-list",[1,"a"]}]'
    )
    assert term(Document({"a": 1})) == '{"a":1}'


def test_limits_as_json_whether_there_are_any(ctl: Run) -> None:
    def listed(*words: str) -> object:
        return json.loads(ctl(*words, "--formatter", "json").stdout)

    assert ctl("add_vhost", "shop").exit_code == 0
    assert listed("list_vhost_limits") == listed("list_vhost_limits", "--global") == []
    assert listed("list_user_limits", "--global") == []
    assert listed("list_user_limits", "--user", "guest") == {"message": "{}"}
    assert ctl("set_vhost_limits", "-p", "shop", '{"max-queues":5}').exit_code == 0
    assert listed("list_vhost_limits", "-p", "shop") == {"result": "ok", "value": '{"max-queues":5}'}
    assert listed("list_vhost_limits", "--global") == [{"vhost": "shop", "limits": '{"max-queues":5}'}]


def test_all_feature_flags_are_on(ctl: Run) -> None:
    """What scripts say after an upgrade; one that is not known is refused, as rabbitmqctl refuses it."""
    done = ctl("enable_feature_flag", "all")
    assert (done.exit_code, done.stdout) == (0, "Enabling all feature flags ...\n")
    assert ctl("-q", "enable_feature_flag", "all").stdout == ""
    refused = ctl("enable_feature_flag", "nosuch")
    assert (refused.exit_code, refused.stdout) == (64, 'Enabling feature flag "nosuch" ...\n')
    assert "not supported" in refused.stderr
