"""The table `[audit]` of the settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amqpd.errors import SettingsError
from amqpd.process.config_sources import load_settings, variable_names
from amqpd.setting_tables import AuditSettings
from amqpd.setting_types import GIB, MIB


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("AMQPD_")]:
        monkeypatch.delenv(name)


def load(tmp_path: Path, text: str) -> AuditSettings:
    path = tmp_path / "amqpd.toml"
    path.write_text(text)
    return load_settings(path).audit


def test_acts_and_figures_are_recorded_by_default(tmp_path: Path) -> None:
    settings = load(tmp_path, "")
    assert (settings.level, settings.vhosts, settings.on_full) == ("counts", {}, "continue")
    assert (settings.spool_bytes, settings.keep_bytes) == (32 * MIB, 10 * GIB)


def test_a_file_says_what_is_recorded_where(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        '[audit]\nlevel = "Sample(0.5)"\nnode = "east-1"\nspool_bytes = "1MiB"\n[audit.vhosts]\n"/" = "full"\n',
    )
    assert (settings.level, settings.node, settings.spool_bytes) == ("sample(0.5)", "east-1", MIB)
    assert settings.vhosts == {"/": "full"}


def test_the_environment_is_stronger_than_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMQPD_AUDIT_LEVEL", "admin")
    monkeypatch.setenv("AMQPD_AUDIT_VHOSTS", '{"a": "off"}')
    settings = load(tmp_path, '[audit]\nlevel = "full"\nfile_seconds = 60\n')
    assert (settings.level, settings.file_seconds, settings.vhosts) == ("admin", 60, {"a": "off"})


def test_each_setting_has_a_variable() -> None:
    assert {f"AMQPD_AUDIT_{name.upper()}" for name in AuditSettings.model_fields} <= set(variable_names())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('level = "some"', "audit.level"),
        ('vhosts = {"/" = "some"}', "audit.vhosts"),
        ('node = "a/b"', "without '/'"),
        ('node = ".a"', "not beginning with a dot"),
        ("file_seconds = 0", "audit.file_seconds"),
        ('spool_bytes = "1KiB"', "audit.spool_bytes"),
        ('on_full = "explode"', "audit.on_full"),
        ('levle = "full"', "did you mean audit.level"),
    ],
)
def test_a_mistake_is_told_of_in_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, f"[audit]\n{text}\n")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_level_in_the_environment_names_the_variable_and_the_levels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMQPD_AUDIT_LEVEL", "everything")
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, "")
    assert "AMQPD_AUDIT_LEVEL" in str(caught.value)
    assert "off, admin, counts, sample(p) with 0 < p <= 1, or full" in str(caught.value)
