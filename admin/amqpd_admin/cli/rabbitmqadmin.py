#!/usr/bin/env python3
"""rabbitmqadmin of amqpd: a management API on the command line, with the words of RabbitMQ's rabbitmqadmin.

What comes in: words. What goes out: a table, TSV or JSON on standard output; exit code 1 with a sentence when the
broker refuses. Rules: 1. It needs Python 3.9 and nothing else, since machines fetch it from the broker and run it.
2. What it does not know is said: nothing is done by halves.
Not here: amqpd's own command line (`amqpd --help`, and `amqpd --url` for a broker elsewhere), which does more.

Source for words and outputs: `rabbitmqadmin --help` of RabbitMQ 3.10 and what it printed.
"""

from __future__ import annotations

import argparse
import base64
import configparser
import json
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple, NoReturn

Row = dict[str, Any]


class Kind(NamedTuple):
    """A kind of thing that the management API has. `path`: of one, with names in braces; `must` and `may`: members
    of the body, those of `may` with what they are when they are left out (None: they are left out then)."""

    path: str
    must: tuple[str, ...] = ()
    may: dict[str, str | None] = {}


JSON = ("arguments", "definition", "value", "properties")
FLAGS = ("auto_delete", "durable", "internal", "tracing")
NUMBERS = ("priority", "count")
_POLICY: dict[str, str | None] = {"priority": "0", "apply-to": None}
KINDS = {
    "exchange": Kind(
        "/exchanges/{vhost}/{name}",
        ("type",),
        {"auto_delete": "false", "durable": "true", "internal": "false", "arguments": "{}"},
    ),
    "queue": Kind(
        "/queues/{vhost}/{name}",
        (),
        {"auto_delete": "false", "durable": "true", "arguments": "{}", "queue_type": None, "node": None},
    ),
    "binding": Kind(
        "/bindings/{vhost}/e/{source}/{destination_type}/{destination}",
        (),
        {"routing_key": "", "arguments": "{}"},
    ),
    "vhost": Kind("/vhosts/{name}", (), {"tracing": None}),
    "user": Kind("/users/{name}", ("tags",), {"password": None, "password_hash": None, "hashing_algorithm": None}),
    "permission": Kind("/permissions/{vhost}/{user}", ("configure", "write", "read")),
    "parameter": Kind("/parameters/{component}/{vhost}/{name}", ("value",)),
    "policy": Kind("/policies/{vhost}/{name}", ("pattern", "definition"), _POLICY),
    "operator_policy": Kind("/operator-policies/{vhost}/{name}", ("pattern", "definition"), _POLICY),
    "vhost_limit": Kind("/vhost-limits/{vhost}/{name}", ("value",)),
}
LISTS = {
    **dict.fromkeys(("exchanges", "queues", "bindings", "policies", "operator_policies"), True),
    **dict.fromkeys(("users", "vhosts", "permissions", "nodes", "connections", "channels", "consumers"), False),
    **dict.fromkeys(("parameters", "vhost_limits"), False),
}
"""whether there is one for each virtual host"""
SHOWN = (
    "name",
    "vhost",
    "type",
    "messages",
    "user",
    "source",
    "destination",
    "routing_key",
    "node",
    "running",
    "tags",
)
TEXT_OF = {True: "True", False: "False", None: ""}
OPTIONS = (
    (("-H", "--host"), "the broker's host (localhost)"),
    (("-P", "--port"), "its port of HTTP (15672)"),
    (("-V", "--vhost"), "the virtual host (all of them for lists, / for changes)"),
    (("-u", "--username"), "the user (guest)"),
    (("-p", "--password"), "its password (guest)"),
    (("-U", "--base-uri"), "in place of host and port, with http:// or https://"),
    (("--path-prefix",), "in front of /api"),
    (("-c", "--config"), "a file with these options in sections"),
    (("-N", "--node"), "the section of that file (default)"),
    (("--ssl-ca-cert-file",), "certificates of authorities to trust"),
)


def main() -> int:
    given = arguments()
    words: list[str] = []
    named: dict[str, str] = {}
    for word in given.words:
        name, equals, value = word.partition("=")
        if equals and words:
            named[name] = value
        else:
            words.append(word)
    if not words:
        fail("no command: see --help", 2)
    command = COMMANDS.get(words[0])
    if command is None:
        fail(f"there is no command '{words[0]}': there are {', '.join(COMMANDS)}", 2)
    return command(Api(given), words[1:], named) or 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="rabbitmqadmin",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="A broker's management API on the command line.",
        epilog="\n".join(
            (
                "Commands:",
                f"  list {'|'.join(LISTS)} [COLUMN...]",
                "  show overview [COLUMN...]",
                *(f"  declare {name} {usage(kind)}" for name, kind in KINDS.items()),
                f"  delete {'|'.join(KINDS)} NAME=...",
                "  close connection name=...; purge queue name=...",
                "  publish routing_key=... [exchange=... payload=... payload_encoding=... properties=...]",
                "  get queue=... [count=... ackmode=... encoding=...]",
                "  export FILE; import FILE",
            )
        ),
    )
    for flags, says in OPTIONS:
        parser.add_argument(*flags, help=says)
    parser.add_argument("-f", "--format", default="table", choices=("table", "tsv", "raw_json", "pretty_json"))
    for short, long, says in (
        ("-s", "--ssl", "https"),
        ("-k", "--ssl-insecure", "any certificate"),
        ("-q", "--quiet", ""),
    ):
        parser.add_argument(short, long, action="store_true", help=says)
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="and its words, as NAME=VALUE")
    given = parser.parse_intermixed_args()
    if given.config:
        from_file(given)
    return given


def from_file(given: argparse.Namespace) -> None:
    """What the file says and the command line does not."""
    file = configparser.ConfigParser(interpolation=None)
    section = given.node or "default"
    if not file.read(given.config) or section not in file:
        fail(f"there is no section '{section}' in {given.config}")
    for name, value in file[section].items():
        option = {"hostname": "host", "declare_vhost": "vhost"}.get(name, name)
        if option == "ssl":
            given.ssl = given.ssl or value.lower() == "true"
        elif getattr(given, option, "") is None:
            setattr(given, option, value)


def usage(kind: Kind) -> str:
    names = [part[1:-1] for part in kind.path.split("/") if part.startswith("{")]
    return " ".join([f"{name}=..." for name in (*names, *kind.must)] + [f"[{name}=...]" for name in kind.may])


class Api:
    """The management API of the broker that the options name."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.vhost: str | None = given.vhost
        scheme = "https" if given.ssl else "http"
        base = given.base_uri or f"{scheme}://{given.host or 'localhost'}:{given.port or 15672}"
        self.base = base.rstrip("/") + (given.path_prefix or "") + "/api"
        self.context = ssl.create_default_context(cafile=given.ssl_ca_cert_file)
        if given.ssl_insecure:
            self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        login = f"{given.username or 'guest'}:{given.password or 'guest'}"
        self.login = "Basic " + base64.b64encode(login.encode()).decode()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """JSON, or None for an empty answer."""
        text = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": self.login, "Content-Type": "application/json"}
        request = urllib.request.Request(self.base + path, text, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self.context) as answer:
                said = answer.read()
        except urllib.error.HTTPError as error:
            refused(error, path)
        except urllib.error.URLError as error:
            fail(f"Could not connect: {error.reason}")
        return json.loads(said) if said else None

    def path_of(self, kind: Kind, named: dict[str, str]) -> str:
        """The names that it takes are taken out of `named`."""
        parts = []
        for part in kind.path.split("/"):
            if part.startswith("{"):
                part = self._named(part[1:-1], named)
            parts.append(part)
        return "/".join(parts)

    def _named(self, name: str, named: dict[str, str]) -> str:
        if name == "destination_type":
            return named.pop(name, "queue")[:1]
        value = named.pop(name, (self.vhost or "/") if name == "vhost" else None)
        if value is None:
            fail(f"mandatory argument '{name}' is missing")
        return quoted(value) or "amq.default"

    def say(self, rows: list[Row], columns: list[str]) -> None:
        if self.given.format == "tsv":
            names = columns or columns_of(rows)
            print(
                "\n".join("\t".join(line) for line in [names, *([cell(row, name) for name in names] for row in rows)])
            )
        elif self.given.format == "table":
            print(table(rows, columns or columns_of(rows)))
        else:
            print(json.dumps(rows, indent=2 if self.given.format == "pretty_json" else None))

    def tell(self, sentence: str) -> None:
        if not self.given.quiet:
            print(sentence)


def list_things(api: Api, words: list[str], named: dict[str, str]) -> None:
    kind = words[0] if words else ""
    if kind not in LISTS:
        fail(f"list one of {', '.join(LISTS)}", 2)
    query = dict(named, **({"columns": ",".join(words[1:])} if words[1:] else {}))
    of_vhost = "/" + quoted(api.vhost) if api.vhost is not None and LISTS[kind] else ""
    path = f"/{kind.replace('_', '-')}{of_vhost}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
    api.say(api.ask("GET", path), words[1:])


def show(api: Api, words: list[str], named: dict[str, str]) -> None:
    if words[:1] != ["overview"]:
        fail("show overview", 2)
    found = api.ask("GET", "/overview")
    columns = words[1:] or ["rabbitmq_version", "cluster_name", "queue_totals.messages", "object_totals.queues"]
    api.say([found], columns)


def declare(api: Api, words: list[str], named: dict[str, str]) -> None:
    name, kind = kind_of(words)
    path = api.path_of(kind, named)
    body = body_of(kind, named)
    if "queue_type" in body:
        body["arguments"]["x-queue-type"] = body.pop("queue_type")
    api.ask("POST" if name == "binding" else "PUT", path, body)
    api.tell(f"{name} declared")


def delete(api: Api, words: list[str], named: dict[str, str]) -> None:
    name, kind = kind_of(words)
    path = api.path_of(kind, named)
    if name == "binding":
        path += "/" + quoted(urllib.parse.unquote(named.pop("properties_key", "~")))
    unknown(named)
    api.ask("DELETE", path)
    api.tell(f"{name} deleted")


def close(api: Api, words: list[str], named: dict[str, str]) -> None:
    api.ask("DELETE", api.path_of(Kind("/connections/{name}"), named))
    api.tell("connection closed")


def purge(api: Api, words: list[str], named: dict[str, str]) -> None:
    api.ask("DELETE", api.path_of(Kind("/queues/{vhost}/{name}/contents"), named))
    api.tell("queue purged")


def publish(api: Api, words: list[str], named: dict[str, str]) -> None:
    named.setdefault("exchange", "amq.default")
    path = api.path_of(Kind("/exchanges/{vhost}/{exchange}/publish"), named)
    if "payload" not in named:
        named["payload"] = sys.stdin.read()
    kind = Kind("", ("routing_key", "payload"), {"payload_encoding": "string", "properties": "{}"})
    routed = api.ask("POST", path, body_of(kind, named))["routed"]
    api.tell("Message published" if routed else "Message published but NOT routed")


def get(api: Api, words: list[str], named: dict[str, str]) -> None:
    path = api.path_of(Kind("/queues/{vhost}/{queue}/get"), named)
    kind = Kind("", (), {"count": "1", "ackmode": "ack_requeue_true", "encoding": "auto"})
    columns = [
        "routing_key",
        "exchange",
        "message_count",
        "payload",
        "payload_bytes",
        "payload_encoding",
        "redelivered",
    ]
    api.say(api.ask("POST", path, body_of(kind, named)), columns)


def export(api: Api, words: list[str], named: dict[str, str]) -> None:
    with open(file_of(words), "w", encoding="utf-8") as file:
        json.dump(api.ask("GET", "/definitions"), file, indent=2)
    api.tell(f'Exported definitions to "{words[0]}"')


def take_in(api: Api, words: list[str], named: dict[str, str]) -> None:
    with open(file_of(words), encoding="utf-8") as file:
        api.ask("POST", "/definitions", json.load(file))
    api.tell(f'Uploaded definitions from "{words[0]}"')


COMMANDS = {
    "list": list_things,
    "show": show,
    "declare": declare,
    "delete": delete,
    "close": close,
    "purge": purge,
    "publish": publish,
    "get": get,
    "export": export,
    "import": take_in,
}


def kind_of(words: list[str]) -> tuple[str, Kind]:
    if not words or words[0] not in KINDS:
        fail(f"say one of {', '.join(KINDS)}", 2)
    return words[0], KINDS[words[0]]


def file_of(words: list[str]) -> str:
    if len(words) != 1:
        fail("say a file", 2)
    return words[0]


def body_of(kind: Kind, named: dict[str, str]) -> Row:
    body: Row = {}
    for name in (*kind.must, *kind.may):
        value = named.pop(name, kind.may.get(name))
        if value is None and name in kind.must:
            fail(f"mandatory argument '{name}' is missing")
        if value is not None:
            body[name] = value_of(name, value)
    unknown(named)
    return body


def value_of(name: str, value: str) -> Any:
    try:
        if name in JSON:
            return json.loads(value)
        return int(value) if name in NUMBERS else {"true": True, "false": False}[value] if name in FLAGS else value
    except (ValueError, KeyError):
        fail(f"'{value}' is no value of {name}")


def unknown(named: dict[str, str]) -> None:
    if named:
        fail(f"unknown arguments: {', '.join(named)}")


def quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def columns_of(rows: list[Row]) -> list[str]:
    return [name for name in SHOWN if any(name in row for row in rows)]


def cell(row: Row, column: str) -> str:
    value: Any = row
    for name in column.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return TEXT_OF[value] if value is None or isinstance(value, bool) else str(value)


def table(rows: list[Row], columns: list[str]) -> str:
    if not rows:
        return "No items"
    lines = [columns, *([cell(row, name) for name in columns] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    shown = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    return "\n".join([rule, shown[0], rule, *shown[1:], rule])


def refused(error: urllib.error.HTTPError, path: str) -> NoReturn:
    if error.code == 401:
        fail(f"Access refused: /api{path}")
    if error.code == 404:
        fail(f"Not found: /api{path}")
    said = error.read().decode("utf-8", "replace")
    try:
        said = json.loads(said)["reason"]
    except (ValueError, KeyError, TypeError):
        pass  # what stands before a broker may answer in words of its own
    fail(f"{error.code} {error.reason}: {said}")


def fail(sentence: str, code: int = 1) -> NoReturn:
    print(f"*** {sentence}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    sys.exit(main())
