"""Where settings come from: a TOML file, below `AMQPD_*` environment variables, below flags.

What comes in: the path of the file and the flags that were given. What goes out: `Settings`, or a
`SettingsError` with one sentence: which setting, where it came from, what is possible instead.
Rules: 1. Nothing is ignored: an unknown name in the file or an unknown `AMQPD_*` variable is an error,
because a misspelt setting that is silently dropped shows only when it is needed. 2. Nothing is touched: files
are only read.
Not here: what the settings are (`config.py`).
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource

from amqpd.compiled import VARIABLE
from amqpd.config import Settings
from amqpd.errors import SettingsError
from amqpd.management.control.remote import URL_VARIABLE
from amqpd.setting_tables import AuditSettings, EventsSettings, HttpSettings, OtelSettings, TlsSettings

CONFIG_VARIABLE = "AMQPD_CONFIG"
PATHS: tuple[tuple[str, ...], ...] = (
    ("data_dir",),
    ("cluster_store_ca",),
    ("cluster_store_certificate",),
    ("cluster_store_key",),
    ("cluster_tls_ca",),
    ("cluster_tls_certificate",),
    ("cluster_tls_key",),
    ("cluster_secret_file",),
    ("tls", "certificate"),
    ("tls", "key"),
    ("tls", "ca"),
)

TABLES: dict[str, type[BaseModel]] = {
    "tls": TlsSettings,
    "audit": AuditSettings,
    "events": EventsSettings,
    "http": HttpSettings,
    "otel": OtelSettings,
}

Values = dict[str, Any]


def load_settings(config: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Settings from the file (`config`, else the one that AMQPD_CONFIG names, else none), environment and
    flags.

    `flags` maps setting names to values; None or an empty tuple means that the flag was not given. Raises
    SettingsError."""
    path = config or (Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None)
    named_by = "--config" if config else CONFIG_VARIABLE
    given = {name: value for name, value in (flags or {}).items() if value not in (None, ())}
    if isinstance(several := given.get("data_dir"), tuple):
        # The flag is both settings: whichever of them file and environment have gives way.
        given["data_dir"], given["data_dirs"] = several[0], several if several[1:] else ()
    from_file = _read_file(path, named_by) if path else {}
    _refuse_unknown_variables()
    from_environment = EnvSettingsSource(Settings)()
    try:
        return Settings(**_merge(_merge(from_file, from_environment), given)).read_from(path)
    except ValidationError as error:
        raise SettingsError(_sentence(error, given, from_environment, path)) from None


def _read_file(path: Path, named_by: str) -> Values:
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise SettingsError(
            f"cannot read the configuration file {path} (from {named_by}): {error.strerror}; "
            "name a readable TOML file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the configuration file {path} is not TOML: {error}; correct it there") from None
    return _paths_from(path.parent, values)


def _paths_from(directory: Path, values: Values) -> Values:
    """Relative paths in a file are meant relative to the file, wherever the broker is started."""
    for *table, name in PATHS:
        target = values.get(table[0]) if table else values
        if isinstance(target, dict) and isinstance(target.get(name), str) and target[name].strip():
            target[name] = str(directory / Path(target[name]).expanduser())
    if isinstance(several := values.get("data_dirs"), list):
        values["data_dirs"] = [
            str(directory / Path(each).expanduser()) if isinstance(each, str) and each.strip() else each
            for each in several
        ]
    return values


def _merge(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> Values:
    merged = dict(lower)
    for name, value in upper.items():
        below = merged.get(name)
        merged[name] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def variable_names() -> list[str]:
    """Every environment variable that means something to amqpd."""
    names = [f"AMQPD_{name}" for name in Settings.model_fields if name not in TABLES]
    names += [f"AMQPD_{table}_{name}" for table, model in TABLES.items() for name in model.model_fields]
    return sorted([CONFIG_VARIABLE, VARIABLE, URL_VARIABLE, *(name.upper() for name in names)])


def _refuse_unknown_variables() -> None:
    known = variable_names()
    for name in sorted(os.environ):
        if name.upper().startswith("AMQPD_") and name.upper() not in known:
            raise SettingsError(
                f"unknown setting {name} in the environment{_did_you_mean(name.upper(), known)}; "
                "correct or unset it (amqpd.example.toml lists every setting)"
            )


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f": did you mean {close[0]}?" if close else ""


def _sentence(error: ValidationError, flags: Values, environment: Values, path: Path | None) -> str:
    """The first problem in full, and how many others there are."""
    problems = error.errors(include_url=False)
    first = problems[0]
    message = str(first["msg"]).removeprefix("Value error, ")
    # Of a location, only the names are for people: the rest are branches of unions and positions in lists.
    location = [str(part) for part in first["loc"]]
    table = location[0] if location and location[0] in TABLES else ""
    names = location[: 2 if table else 1]
    if not names or (names == [table] and first["type"] == "value_error"):
        text = f"settings contradict each other: {message}"
    elif first["type"] == "extra_forbidden":
        known = TABLES[table].model_fields if len(names) == 2 else Settings.model_fields
        prefix = f"{table}." if len(names) == 2 else ""
        meant = _did_you_mean(".".join(names), [prefix + name for name in known])
        text = f"unknown setting {'.'.join(names)} in {path}{meant}; correct or remove it there"
    else:
        origin, way_out = _origin(names, flags, environment, path)
        text = f"setting {'.'.join(names)} = {_shown(first['input'])} ({origin}) {_wanted(first)}; {way_out}"
    others = len(problems) - 1
    return text + (f" ({others} more wrong setting{'s' if others > 1 else ''} after this one)" if others else "")


def _origin(names: list[str], flags: Values, environment: Values, path: Path | None) -> tuple[str, str]:
    if names[0] in flags:
        flag = "--" + names[0].replace("_", "-")
        return f"from {flag}", f"give {flag} another value"
    in_environment = environment.get(names[0]) is not None
    if in_environment and len(names) == 2:
        values = environment[names[0]]
        in_environment = isinstance(values, dict) and names[1] in values
    if in_environment:
        variable = "_".join(["AMQPD", *names]).upper()
        return f"from {variable} in the environment", f"correct or unset {variable}"
    return f"from {path}", "correct it there"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _wanted(problem: Any) -> str:
    """pydantic's finding in our words; what is not in the table is rare and keeps pydantic's own."""
    context = problem.get("ctx", {})
    match problem["type"]:
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "greater_than":
            return f"must be more than {context['gt']}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
        case "int_parsing" | "int_type" | "int_from_float":
            return "must be a whole number"
        case "float_parsing" | "float_type":
            return "must be a number"
        case "literal_error":
            return f"must be one of {context['expected']}"
        case "bool_parsing" | "bool_type":
            return "must be true or false"
        case "model_type":
            return "must be a table"
        case "value_error":
            return str(context["error"])
        case _:
            message = str(problem["msg"])
            return "is not possible: " + message[:1].lower() + message[1:]
