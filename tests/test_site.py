"""The documentation site: it has every document, every command and every setting.

What is verified: navigation, references, and the folder that Sphinx is given. Not verified: the build, which
`make site` does, and which a broken link fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from amqpd.__main__ import cli
from amqpd.config import Settings
from amqpd.process.config_sources import CONFIG_VARIABLE, TABLES, variable_names
from scripts.reference import accepts, commands, commands_index, configuration, settings
from scripts.site_source import GENERATED, LINK, ROOT, decisions, navigation, pages, write

AROUND = {CONFIG_VARIABLE, "AMQPD_KERNEL", "AMQPD_URL"}
"""variables that are no settings"""


def paths(command: click.Command, context: click.Context) -> Iterator[str]:
    yield context.command_path
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            if not below.hidden:
                yield from paths(below, click.Context(below, info_name=name, parent=context))


def test_the_navigation_has_every_document_once() -> None:
    documents = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    named = [page for section in navigation() for page in section["pages"]]
    assert len(named) == len(set(named))
    assert documents <= set(pages())
    assert [page for page in pages() if not (ROOT / page).is_file()] == []
    assert set(GENERATED) <= set(named)
    assert len(decisions()) == len(list((ROOT / "docs" / "decisions").glob("*.md")))


def test_the_reference_has_every_command_with_its_options() -> None:
    headings = re.findall(r"(?m)^#+ (amqpd.*)$", "\n".join(commands().values()))
    expected = [path for path in paths(cli, click.Context(cli, info_name="amqpd")) if path != "amqpd"]
    assert len(expected) > 100
    assert headings == expected
    assert set(re.findall(r"\]\(commands/([\w-]+)\.md\)", commands_index())) == set(commands())
    assert "| `--only [empty\\|backlog\\|unused\\|used]` |" in commands()["queue"]
    assert "`/` is there from the beginning" in commands()["vhost"], "code is code, without backslashes"


def test_the_reference_has_every_setting_with_its_variable() -> None:
    rows = re.findall(r"(?m)^\| `([\w.]+)` \| `(\w+)` \|", configuration())
    names = [name for name in Settings.model_fields if name not in TABLES]
    names += [f"{table}.{name}" for table, model in TABLES.items() for name in model.model_fields]
    assert sorted(name for name, _ in rows) == sorted(names) == sorted(settings())
    assert {variable for _, variable in rows} == set(variable_names()) - AROUND


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("frame_max", "a whole number, at least 4,096, at most 16,777,216"),
        ("disk_free_bytes_min", "a size in bytes, at least 0"),
        ("fast_takeover", "`true` or `false`"),
        ("tls.verify_peer", "`none` or `optional` or `required`"),
        ("tls.certificate", "a path"),
        ("bind", "a list"),
        ("audit.vhosts", "a table"),
    ],
)
def test_what_a_setting_accepts_is_said_in_words(name: str, said: str) -> None:
    assert accepts(settings()[name], name) == said


def test_what_sphinx_is_given_has_what_its_pages_link_to(tmp_path: Path) -> None:
    write(tmp_path)
    for page in tmp_path.rglob("*.md"):
        broken = [each for each in LINK.findall(page.read_text()) if not (page.parent / each).is_file()]
        assert broken == [], page
        if page.name != "index.md":
            assert page.read_text().startswith("# "), page
