"""What the documentation site is built from: `python -m scripts.site_source FOLDER` (`make site`).

What comes in: `docs/site/nav.toml`, the documents that it names, and the references (`scripts/reference.py`). What
goes out: FOLDER, filled again, with the documents where they are in the repository, so that their links are the same.
Rules: 1. Documents are copied as they are; only links to folders become plain text, since a folder is no page.
2. Contents are added in the copies and not in the documents: they are for people who read them on GitHub, too.
Not here: how the pages look (`docs/site/conf.py`).
"""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from scripts.reference import commands, commands_index, configuration

ROOT = Path(__file__).parents[1]
SITE = ROOT / "docs" / "site"
GENERATED = ("commands", "configuration")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def navigation() -> list[dict[str, Any]]:
    sections: list[dict[str, Any]] = tomllib.loads((SITE / "nav.toml").read_text())["section"]
    return sections


def pages() -> list[str]:
    """Every document of the site, as a path from the top of the repository."""
    named = [page for section in navigation() for page in section["pages"] if page not in GENERATED]
    return ["README.md", *named, *decisions()]


def decisions() -> list[str]:
    """In the order of ARCHITECTURE.md."""
    return re.findall(r"(?m)^- \[.+\]\((docs/decisions/.+\.md)\)$", (ROOT / "ARCHITECTURE.md").read_text())


def write(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for page in pages():
        put(folder / ("index.md" if page == "README.md" else page), without_folders(ROOT / page))
        for target in LINK.findall((ROOT / page).read_text()):
            copy_file((ROOT / page).parent / target, folder)
    append(folder / "index.md", contents([section["name"] for section in navigation()], hidden=True))
    append(folder / "ARCHITECTURE.md", contents([each.removesuffix(".md") for each in decisions()], hidden=True))
    for section in navigation():
        names = [page.removesuffix(".md") for page in section["pages"]]
        names = [f"reference/{name}" if name in GENERATED else name for name in names]
        put(folder / f"{section['name']}.md", f"# {section['title']}\n\n{section['says']}\n{contents(names)}")
    put(folder / "reference" / "commands.md", commands_index())
    for name, text in commands().items():
        put(folder / "reference" / "commands" / f"{name}.md", text)
    put(folder / "reference" / "configuration.md", configuration())
    copy_file(ROOT / "amqpd.example.toml", folder)
    shutil.copy(SITE / "conf.py", folder)
    (folder / "_static").mkdir()
    shutil.copy(SITE / "site.css", folder / "_static")


def without_folders(document: Path) -> str:
    def plain(match: re.Match[str]) -> str:
        return match[1] if (document.parent / match[2]).is_dir() else match[0]

    return re.sub(r"\[([^\]]+)\]\(([^)#:\s]+)\)", plain, document.read_text())


def contents(names: list[str], *, hidden: bool = False) -> str:
    options = ":hidden:" if hidden else ":maxdepth: 1"
    return "\n".join(["", "```{toctree}", options, "", *names, "```", ""])


def copy_file(path: Path, folder: Path) -> None:
    """A file that a document links to, pictures among them; documents have their own way here."""
    path = path.resolve()
    if path.is_file() and path.suffix != ".md":
        where = folder / path.relative_to(ROOT)
        where.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, where)


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


if __name__ == "__main__":
    write(Path(sys.argv[1]).resolve())
