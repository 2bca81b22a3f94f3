"""Every command's help has an example that could be typed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from amqpd.__main__ import COMMANDS

GROUPS: dict[str, click.Command] = {
    name: getattr(importlib.import_module(module), attribute)
    for name, (module, attribute, _) in COMMANDS.items()
    if name != "serve"
}


def commands() -> Iterator[list[str]]:
    for name, group in GROUPS.items():
        yield [name]
        for command, inner in group.commands.items() if isinstance(group, click.Group) else ():
            yield [name, command]
            for deeper in inner.commands if isinstance(inner, click.Group) else ():
                yield [name, command, deeper]


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_help_has_an_example_on_a_line_of_its_own(words: list[str]) -> None:
    result = CliRunner().invoke(GROUPS[words[0]], [*words[1:], "--help"], prog_name=words[0])
    assert result.exit_code == 0
    examples = [line for line in result.output.splitlines() if line.startswith("    amqpd ")]
    assert any(example.split()[1:2] == words[:1] for example in examples), result.output
