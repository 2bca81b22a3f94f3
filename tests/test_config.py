"""Settings: defaults, the three sources and their order, and one sentence for every mistake."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from amqpd.config import Settings, default_data_dir
from amqpd.errors import SettingsError
from amqpd.process.config_sources import TABLES, load_settings, variable_names
from amqpd.setting_tables import AuditSettings, TlsSettings
from amqpd.setting_types import parse_bytes

EXAMPLE = Path(__file__).parents[1] / "amqpd.example.toml"
# No default that could stand in a file: they are off until someone names a file.
WITHOUT_DEFAULT = {"tls.certificate", "tls.key", "tls.ca"}
CLUSTER_FILES = (
    "cluster_secret_file",
    *(f"cluster_{which}_{name}" for which in ("store", "tls") for name in ("ca", "certificate", "key")),
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("AMQPD_")]:
        monkeypatch.delenv(name)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "amqpd.toml"
    path.write_text(text)
    return path


def dotted(values: dict[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in values.items():
        flat |= dotted(value, name + ".") if isinstance(value, dict) and value else {prefix + name: value}
    return flat


def field_names(model: type[BaseModel], prefix: str = "") -> set[str]:
    return {prefix + name for name in model.model_fields if prefix or name not in TABLES}


def uncommented_example() -> dict[str, object]:
    # A commented setting has no space after the mark, prose has one.
    return tomllib.loads(re.sub(r"(?m)^#(?=[a-z_]+ = )", "", EXAMPLE.read_text()))


def test_the_example_as_it_stands_changes_nothing() -> None:
    assert load_settings(EXAMPLE) == Settings()


def test_settings_know_the_file_that_they_are_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, "port = 5999")
    assert (load_settings(file).config_file, load_settings().config_file) == (file, None)
    monkeypatch.setenv("AMQPD_CONFIG", str(file))
    named = load_settings()
    assert named.config_file == file
    assert named.model_copy(update={"port": 6000}).config_file == file
    assert named == Settings(port=5999)


def test_the_example_lists_every_setting_and_no_other() -> None:
    assert set(dotted(uncommented_example())) == field_names(Settings).union(
        *(field_names(model, f"{table}.") for table, model in TABLES.items())
    )


def test_the_examples_values_are_the_defaults() -> None:
    shown = uncommented_example()
    tls = shown["tls"]
    assert isinstance(tls, dict)
    for name in WITHOUT_DEFAULT:
        del tls[name.removeprefix("tls.")]
    for name in CLUSTER_FILES:
        del shown[name]
    # data_dir is what root gets; for others the text above it says what.
    assert shown.pop("data_dir") == "/var/lib/amqpd"
    assert Settings(**shown, data_dir="/x") == Settings(data_dir="/x")


def test_flags_win_over_environment_wins_over_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "port = 1\nheartbeat_s = 2\nframe_max = 5000\n[tls]\nport = 3\nmin_version = '1.3'\n")
    monkeypatch.setenv("AMQPD_PORT", "4")
    monkeypatch.setenv("AMQPD_HEARTBEAT_S", "5")
    monkeypatch.setenv("AMQPD_TLS_PORT", "6")
    settings = load_settings(path, {"port": "7", "bind": (), "data_dir": None})
    assert (settings.port, settings.heartbeat_s, settings.frame_max) == (7, 5, 5000)
    assert (settings.tls.port, settings.tls.min_version) == (6, "1.3")
    assert settings.bind == ("127.0.0.1", "::1")


def test_the_file_can_be_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMQPD_CONFIG", str(write(tmp_path, "port = 11")))
    assert load_settings().port == 11
    assert load_settings(write(tmp_path / "..", "port = 12")).port == 12


def test_every_setting_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = {
        "AMQPD_BIND": "127.0.0.1, ::1",
        "AMQPD_PLAIN_LISTENER": "false",
        "AMQPD_LOOPBACK_USERS": "guest,admin",
        "AMQPD_MESSAGE_BYTES_MAX": "1MiB",
        "AMQPD_MEMORY_HIGH_WATERMARK": "0.5",
        "AMQPD_DISK_FREE_BYTES_MIN": "1 GB",
        "AMQPD_DATA_DIR": str(tmp_path),
        "AMQPD_LOG_LEVEL": "",
        "AMQPD_TLS_CERTIFICATE": "/c",
        "AMQPD_TLS_CA": "/a",
        "AMQPD_TLS_VERIFY_PEER": "required",
        "AMQPD_TLS_LOGIN_FROM": "common_name",
    }
    assert set(values) <= set(variable_names())
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert settings.bind == ("127.0.0.1", "::1")
    assert settings.loopback_users == ("guest", "admin")
    assert settings.plain_listener is False
    assert (settings.message_bytes_max, settings.disk_free_bytes_min) == (1 << 20, 10**9)
    assert settings.memory_high_watermark == 0.5
    assert settings.data_dir == tmp_path
    assert settings.log_level == "info", "an empty variable is one that is not set"
    assert settings.tls == TlsSettings(certificate="/c", ca="/a", verify_peer="required", login_from="common_name")


def test_paths_in_the_file_are_relative_to_the_file(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, 'data_dir = "d"\n[tls]\ncertificate = "c.pem"\nca = "/abs"'))
    assert settings.data_dir == tmp_path / "d"
    assert settings.tls.certificate == tmp_path / "c.pem"
    assert settings.tls.ca == Path("/abs")


def test_a_node_of_a_cluster_is_reached_where_it_says(tmp_path: Path) -> None:
    store = 'cluster_store = "etcd://e"\n'
    listen, advertise = 'cluster_listen = "[::]:1"\n', 'cluster_advertise = " [fd00::1]:02 "\n'
    settings = load_settings(write(tmp_path, store + listen + advertise))
    assert (settings.cluster_listen, settings.cluster_advertise) == ("[::]:1", "[fd00::1]:2")
    assert settings.cluster_address == ("fd00::1", 2)
    tls = 'cluster_tls_ca = "c"\ncluster_tls_certificate = "d"\n'
    settings = load_settings(write(tmp_path, store + 'cluster_listen = "a:0"\n' + tls))
    assert settings.cluster_address == ("a", 0)
    assert settings.cluster_tls_ca == tmp_path / "c"
    assert Settings().cluster_address is None


def test_settings_made_in_code_read_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMQPD_PORT", "4")
    assert Settings().port == 5672


@pytest.mark.parametrize("name", ["", "@host", "a@b@c", "a/b", ".a", "a\n", "a'b", "é", "a:b", "a" * 101])
def test_names_that_no_node_has(name: str) -> None:
    with pytest.raises(ValidationError):
        Settings(node_name=name)


def test_a_node_is_called_after_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "some machine")
    assert Settings().node_name == "amqpd@some-machine"
    assert Settings(node_name="shop-1").node_name == "shop-1@some-machine"
    assert Settings(node_name="rabbit@other.example").node_name == "rabbit@other.example"


def test_an_audit_log_that_was_begun_under_the_machines_name_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "machine")
    assert Settings().audit_node == "machine"
    assert Settings(node_name="shop").audit_node == "shop@machine"
    assert Settings(node_name="shop", audit=AuditSettings(node="books")).audit_node == "books"


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ("port = 70000", "setting port = 70000 (from {file}) must be at most 65535; correct it there"),
        (
            "port = true",
            "setting port = True (from {file}) must be a number, not true or false; correct it there",
        ),
        (
            'node_name = "my node"',
            "setting node_name = 'my node' (from {file}) must be a name such as amqpd, or name@host: letters, "
            "digits, '_', '.' and '-', at most 100; correct it there",
        ),
        (
            'cluster_store = "http://a"',
            "setting cluster_store = 'http://a' (from {file}) must be etcd://HOST[:PORT],HOST[:PORT]... or "
            "etcds://... for TLS, and maybe /NAME behind it; correct it there",
        ),
        (
            'cluster_store = "etcd://a"\ncluster_store_user = "u"',
            "settings contradict each other: cluster_store_user and cluster_store_password: set both, or neither",
        ),
        (
            'cluster_store = "etcd://a"\ncluster_store_ca = "ca.pem"',
            "settings contradict each other: cluster_store_ca, _certificate and _key are for TLS: write "
            "cluster_store as etcds://...",
        ),
        (
            'cluster_listen = "10.0.0.1"',
            "setting cluster_listen = '10.0.0.1' (from {file}) must be HOST:PORT, such as 10.0.0.1:5673, "
            "node1.example:5673 or [fd00::1]:5673; correct it there",
        ),
        (
            'cluster_advertise = "0.0.0.0:5673"',
            "setting cluster_advertise = '0.0.0.0:5673' (from {file}) must be one address and port at which others "
            "reach this node; correct it there",
        ),
        (
            'cluster_label = "rack 1"',
            "setting cluster_label = 'rack 1' (from {file}) must be of letters, digits, '_', '.' and '-', at most "
            "100; correct it there",
        ),
        (
            'cluster_region = "é"',
            "setting cluster_region = 'é' (from {file}) must be of letters, digits, '_', '.' and '-', at most 100; "
            "correct it there",
        ),
        (
            "cluster_copies = 4",
            "setting cluster_copies = 4 (from {file}) must be odd: 4 copies outlive no more losses than 3; correct "
            "it there",
        ),
        (
            "cluster_copies = 11",
            "setting cluster_copies = 11 (from {file}) must be at most 9; correct it there",
        ),
        (
            "cluster_lease_s = 1",
            "setting cluster_lease_s = 1 (from {file}) must be at least 2.0; correct it there",
        ),
        (
            'fast_takeover = "yes!"',
            "setting fast_takeover = 'yes!' (from {file}) must be true or false; correct it there",
        ),
        (
            'cluster_listen = "a:1"',
            "settings contradict each other: cluster_listen is set without cluster_store: say in which etcd the "
            "cluster meets",
        ),
        (
            'cluster_advertise = "a:1"',
            "settings contradict each other: cluster_advertise is set without cluster_listen: this node listens for "
            "no others",
        ),
        (
            'cluster_tls_ca = "ca.pem"',
            "settings contradict each other: cluster_tls_ca is set without cluster_listen: this node listens for no "
            "others",
        ),
        (
            'cluster_store = "etcd://e"\ncluster_listen = "[::]:1"',
            "settings contradict each other: cluster_listen is every interface: say in cluster_advertise at which "
            "address others reach this node",
        ),
        (
            'cluster_store = "etcd://e"\ncluster_listen = "a:1"\ncluster_tls_ca = "ca.pem"',
            "settings contradict each other: cluster_tls_ca and cluster_tls_certificate: set both, or neither; both "
            "ends show a certificate",
        ),
        (
            'cluster_store = "etcd://e"\ncluster_listen = "a:1"\ncluster_tls_key = "key.pem"',
            "settings contradict each other: cluster_tls_key is set without cluster_tls_certificate: set both, or "
            "neither",
        ),
        ("prot = 1", "unknown setting prot in {file}: did you mean port?; correct or remove it there"),
        (
            "[tls]\nprt = 1",
            "unknown setting tls.prt in {file}: did you mean tls.port?; correct or remove it there",
        ),
        ("tls = 3", "setting tls = 3 (from {file}) must be a table; correct it there"),
        (
            "frame_max = 4095",
            "setting frame_max = 4095 (from {file}) must be at least 4096; correct it there",
        ),
        ('data_dir = ""', "setting data_dir = '' (from {file}) must not be empty; correct it there"),
        (
            'log_level = "loud"',
            "setting log_level = 'loud' (from {file}) must be one of 'debug', 'info', 'warning' or 'error'; "
            "correct it there",
        ),
        (
            "heartbeat_s = 1.5\nport = -1",
            "setting port = -1 (from {file}) must be at least 0; correct it there "
            "(1 more wrong setting after this one)",
        ),
        (
            "memory_high_watermark = 0",
            "setting memory_high_watermark = 0 (from {file}) must be a fraction of the memory "
            "(more than 0, up to 1), or at least 128MiB; correct it there",
        ),
        (
            "plain_listener = false",
            "settings contradict each other: plain_listener is false without tls.certificate: nobody could connect",
        ),
        (
            '[tls]\nverify_peer = "required"\ncertificate = "c"',
            "settings contradict each other: tls.verify_peer is 'required' without tls.ca: say whom to trust",
        ),
        (
            '[tls]\nport = 5672\ncertificate = "c"',
            "settings contradict each other: port and tls.port are both 5672: give each listener its own",
        ),
        (
            'queue_memory_bytes = "1GiB"',
            "settings contradict each other: queue_memory_bytes is more than backlog_memory_bytes, "
            "the bound for all queues together",
        ),
        (
            "frame_max = 4194304",
            "settings contradict each other: outbox_bytes_max is less than two frames of frame_max",
        ),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence(toml: str, sentence: str, tmp_path: Path) -> None:
    path = write(tmp_path, toml)
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    assert caught.value.sentence == sentence.format(file=path)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "AMQPD_PORT",
            "many",
            "setting port = 'many' (from AMQPD_PORT in the environment) must be a whole number; "
            "correct or unset AMQPD_PORT",
        ),
        (
            "AMQPD_TLS_PORT",
            "-1",
            "setting tls.port = '-1' (from AMQPD_TLS_PORT in the environment) must be at least 0; "
            "correct or unset AMQPD_TLS_PORT",
        ),
        (
            "AMQPD_PROT",
            "1",
            "unknown setting AMQPD_PROT in the environment: did you mean AMQPD_PORT?; "
            "correct or unset it (amqpd.example.toml lists every setting)",
        ),
        (
            "AMQPD_CONFIG",
            "/does/not/exist",
            "cannot read the configuration file /does/not/exist (from AMQPD_CONFIG): "
            "No such file or directory; name a readable TOML file",
        ),
    ],
)
def test_a_mistake_in_the_environment_is_one_sentence(
    name: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert caught.value.sentence == sentence


def test_a_wrong_flag_is_blamed_and_not_the_file_below_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"setting port = 'x' \(from --port\) must be a whole number"):
        load_settings(write(tmp_path, "port = 1"), {"port": "x"})


def test_a_file_that_is_not_toml_is_named_with_the_place(tmp_path: Path) -> None:
    path = write(tmp_path, "port = \n")
    with pytest.raises(SettingsError, match=rf"{path} is not TOML: .*line 1"):
        load_settings(path)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("1", 1), ("50MB", 50_000_000), ("128 MiB", 128 << 20), ("1.5KiB", 1536), ("2gib", 2 << 30), (7, 7)],
)
def test_sizes(text: object, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["", "MB", "-1", "1XB", "1 2", "1e3", "infMB", True])
def test_sizes_that_are_none(text: object) -> None:
    with pytest.raises(ValueError, match="number of bytes"):
        parse_bytes(text)


@pytest.mark.parametrize(("given", "value"), [(0.4, 0.4), (1, 1.0), ("1.0", 1.0), ("2GiB", 2 << 30), (1e9, 10**9)])
def test_the_watermark_is_a_fraction_or_bytes(given: object, value: float) -> None:
    settings = Settings(memory_high_watermark=given)
    assert settings.memory_high_watermark == value
    assert isinstance(settings.memory_high_watermark, float) == (value <= 1)


def test_the_data_directory_of_a_user_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    assert default_data_dir() == Path("/home/ada/.local/state/amqpd")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_data_dir() == Path("/state/amqpd")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_data_dir() == Path("/var/lib/amqpd")


def test_http_needs_a_certificate_for_tls_and_a_port_of_its_own():
    with pytest.raises(ValidationError, match=r"http\.tls is set without tls\.certificate"):
        Settings(http={"tls": True})
    with pytest.raises(ValidationError, match=r"port and http\.port are both 7000"):
        Settings(port=7000, http={"enabled": True, "port": 7000})
    assert Settings(port=7000, http={"enabled": False, "port": 7000}).http.port == 7000, "it is off"
