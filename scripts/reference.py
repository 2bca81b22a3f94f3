"""The references of the documentation site, as Markdown: every command, and every setting.

What comes in: amqpd's command line (click), `amqpd.example.toml`, and the fields of `Settings`. What goes out: text.
Rules: 1. Nothing is said here that the program does not say itself: help texts, the example's comments, the fields'
bounds. 2. A command or a setting that is missing fails a test (`tests/test_site.py`).
Not here: what is done with the text (`site_source.py`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from amqpd.__main__ import cli
from amqpd.config import Settings

EXAMPLE = Path(__file__).parents[1] / "amqpd.example.toml"
_SECTION = re.compile(r"# --- (.+?) -+")
_TABLE = re.compile(r"\[(\w+)\]")
_SETTING = re.compile(r"#(\w+) = (.*)")
# How Python says what a field may be, and how people do.
_KINDS = {"bool": "`true` or `false`", "int": "a whole number", "float": "a number", "str": "text", "Path": "a path"}
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def commands() -> dict[str, str]:
    """Of each command at the top: its page, which has those below it too."""
    context = click.Context(cli, info_name="amqpd")
    pages = {}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        pages[name] = "\n".join(_command(command, click.Context(command, info_name=name, parent=context), 1))
    return pages


def commands_index() -> str:
    """The page above those of the commands: what all have in common, and one line for each."""
    context = click.Context(cli, info_name="amqpd")
    text = ["# Commands", "", *_help(cli.help), *_options(cli, context), *_help(cli.epilog)]
    text += ["## All commands", "", "| Command | |", "| --- | --- |"]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        text.append(f"| [amqpd {name}](commands/{name}.md) | {_cell(command.get_short_help_str(200))} |")
    hidden = "\n".join(f"commands/{name}" for name in cli.list_commands(context))
    return "\n".join([*text, "", f"```{{toctree}}\n:hidden:\n\n{hidden}\n```", ""])


def _command(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    yield f"{'#' * level} {context.command_path}"
    yield ""
    yield from ("```", " ".join([context.command_path, *command.collect_usage_pieces(context)]), "```", "")
    yield from _help(command.help)
    yield from _options(command, context)
    yield from _help(command.epilog)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from _command(below, click.Context(below, info_name=name, parent=context), level + 1)


def _options(command: click.Command, context: click.Context) -> list[str]:
    records = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    # Arguments are explained in the text, and each command has --help.
    records = [(names, said) for names, said in records if said and "--help" not in names]
    if not records:
        return []
    return ["| Option | |", "| --- | --- |", *(f"| `{_bar(names)}` | {_cell(said)} |" for names, said in records), ""]


def _help(text: str | None) -> list[str]:
    """A help text: paragraphs, and where click is told to keep the lines (\\b), a block of code."""
    lines: list[str] = []
    for paragraph in re.split(r"\n[ ]*\n", inspect.cleandoc(text or "").partition("\f")[0]):
        kept, rest = paragraph.startswith("\b"), paragraph.removeprefix("\b").strip("\n")
        if kept:
            title, _, code = rest.partition("\n")
            lines += [_escaped(title), ""] if title.endswith(":") else []
            lines += ["```", inspect.cleandoc("\n" + (code if title.endswith(":") else rest)), "```", ""]
        elif rest:
            lines += [_escaped(" ".join(rest.split())), ""]
    return lines


def _escaped(text: str) -> str:
    """As it is typed; what stands between backticks is code."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(each if at % 2 else re.sub(r"([\\`*_<>\[\]#])", r"\\\1", each) for at, each in enumerate(parts))


def _bar(text: str) -> str:
    return text.replace("|", r"\|")


def _cell(text: str) -> str:
    return _bar(_escaped(" ".join(text.split())))


def configuration() -> str:
    """The page of all settings: the example's sections and comments, each setting with its variable and bounds."""
    text = [
        "# Configuration",
        "",
        "Settings come from a TOML file (`amqpd serve --config FILE`, or `AMQPD_CONFIG`); environment variables take "
        "precedence over it, and flags of `amqpd serve` over both. Sizes are bytes, or text with a unit: `64KiB`, "
        "`50MB`, `2GiB`. Relative paths are relative to the file. An unknown name is an error. "
        "[amqpd.example.toml](../amqpd.example.toml) is all of this as a file to begin with.",
        "",
    ]
    table = ""
    for block in _blocks():
        said, names = [], []
        for line in block:
            if found := _SECTION.fullmatch(line):
                # A table's settings end where the next section begins.
                table = ""
                text += [f"## {found[1][:1].upper()}{found[1][1:]}", ""]
            elif found := _TABLE.fullmatch(line):
                table = f"{found[1]}."
            elif found := _SETTING.fullmatch(line):
                names.append((f"{table}{found[1]}", found[2]))
            else:
                said.append(line.removeprefix("#").strip())
        if names:
            text += [f"### {', '.join(name for name, _ in names)}", ""]
        if said:
            text += [_prose(" ".join(said)), ""]
        if names:
            text += ["| Setting | Variable | Default | Accepts |", "| --- | --- | --- | --- |"]
            text += [*(_row(name, shown) for name, shown in names), ""]
    return "\n".join(text)


def _blocks() -> Iterator[list[str]]:
    """Of the example, from its first section on: lines that stand together."""
    text = EXAMPLE.read_text()
    for block in text[text.index("# ---") :].split("\n\n"):
        yield [line for line in block.split("\n") if line]


def settings() -> dict[str, FieldInfo]:
    """Every setting by its name as in `tls.port`."""
    found = {}
    for name, field in Settings.model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            found |= {f"{name}.{below}": each for below, each in model.model_fields.items()}
        else:
            found[name] = field
    return found


def _row(name: str, shown: str) -> str:
    field = settings()[name]
    default = "" if field.get_default(call_default_factory=True) is None else f"`{_bar(shown)}`"
    variable = f"AMQPD_{name.replace('.', '_').upper()}"
    return f"| `{name}` | `{variable}` | {default} | {_bar(accepts(field, name))} |"


def accepts(field: FieldInfo, name: str = "") -> str:
    """What a setting may be, in words: its kind, and its bounds."""
    kind = _kind(field.annotation)
    if kind == _KINDS["int"] and "bytes" in name:
        kind = "a size in bytes"
    bounds = [
        f"{words} {value:,}"
        for attribute, words in _BOUNDS.items()
        for each in field.metadata
        if (value := getattr(each, attribute, None)) is not None
    ]
    return ", ".join([kind, *bounds])


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) is tuple:
        return "a list"
    if get_origin(annotation) is dict:
        return "a table"
    names = [each for each in get_args(annotation) if each is not type(None)]
    if names:
        return _kind(names[0])
    return _KINDS.get(getattr(annotation, "__name__", ""), "text")


def _prose(text: str) -> str:
    """A comment of the example, in which names stand without marks."""
    known = {*(name.rpartition(".")[2] for name in settings() if "_" in name)}
    text = re.sub(r"([<>*])", r"\\\1", text)
    return re.sub(r"(?<![\w`])([a-z]+(?:_[a-z]+)+)\b", lambda m: f"`{m[1]}`" if m[1] in known else m[1], text)
