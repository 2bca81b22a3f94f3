"""Folders and files of this machine: the same through Hadoop as without Java.

What is verified: every question, asked both ways. Not verified: stores of objects, which need one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from amqpd_spark.files import FILE, FOLDER, Failed, Files, address, files_of, fitting, plain


@pytest.fixture(params=["file:", ""], ids=["without Java", "through Hadoop"])
def at(request: pytest.FixtureRequest) -> str:
    """What addresses begin with."""
    return str(request.param)


@pytest.fixture
def files(spark: SparkSession, at: str) -> Files:
    return files_of(spark, f"{at}/tmp")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("date=2026-11-22/hour=05/a [1].parquet", "date=2026-11-23/hour=00/b.parquet", "_log-n%20x.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def test_what_is_there(files: Files, at: str, tree: Path):
    assert files.kind(f"{at}{tree}") == FOLDER
    assert files.kind(f"{at}{tree}/_log-n%20x.json") == FILE
    assert files.kind(f"{at}{tree}/absent") is None
    assert files.full(f"{at}{tree}/") == f"file:{tree}"
    assert sorted(files.entries(f"{at}{tree}")) == [
        (f"file:{tree}/_log-n%20x.json", FILE),
        (f"file:{tree}/date=2026-11-22", FOLDER),
        (f"file:{tree}/date=2026-11-23", FOLDER),
    ]
    names = ("_log-n%20x.json", "date=2026-11-22/hour=05/a [1].parquet", "date=2026-11-23/hour=00/b.parquet")
    assert sorted(files.below(f"{at}{tree}")) == [(f"file:{tree}/{name}", len(name)) for name in names]


def test_files_in_a_folder_that_is_elsewhere(files: Files, at: str, tree: Path):
    (tree / "date=2026-11-22" / "linked").symlink_to(tree / "date=2026-11-23")
    found = [path for path, _ in files.below(f"{at}{tree}/date=2026-11-22")]
    assert f"file:{tree}/date=2026-11-22/linked/hour=00/b.parquet" in found


def test_folders_that_fit_a_pattern(spark: SparkSession, at: str, tree: Path):
    five, midnight = f"file:{tree}/date=2026-11-22/hour=05", f"file:{tree}/date=2026-11-23/hour=00"
    assert fitting(spark, f"{at}{tree}/date=*/hour=0[05]") == [five, midnight]
    assert fitting(spark, f"{at}{tree}/date=*/hour=0[^0]") == [five]
    assert fitting(spark, f"{at}{tree}/date=2026-11-{{21,23}}/hour=*") == [midnight]
    assert fitting(spark, f"{at}{tree}/*.json") == fitting(spark, f"{at}{tree}/none*") == []


def test_a_part_of_a_file(files: Files, at: str, tree: Path):
    name = f"{at}{tree}/date=2026-11-22/hour=05/a [1].parquet"
    assert files.read(name) == b"date=2026-11-22/hour=05/a [1].parquet"
    assert files.read(name, 24, 5) == b"a [1]"
    assert files.read(name, 24) == b"a [1].parquet"


def test_written_over_and_removed(files: Files, at: str, tree: Path):
    folder = f"{at}{tree}/new/deep"
    files.make_folder(folder)
    files.make_folder(folder)
    for content in (b"long enough", b"short"):
        files.write(f"{folder}/x", content)
        assert (tree / "new" / "deep" / "x").read_bytes() == content
    files.remove(f"{folder}/x")
    assert files.kind(f"{folder}/x") is None
    files.remove(f"{at}{tree}/new")
    assert not (tree / "new").exists()


def test_of_a_link_the_link_is_removed(files: Files, at: str, tree: Path):
    (tree / "elsewhere").mkdir()
    (tree / "elsewhere" / "kept").write_text("")
    (tree / "link").symlink_to(tree / "elsewhere")
    files.remove(f"{at}{tree}/link")
    assert not (tree / "link").is_symlink()
    assert (tree / "elsewhere" / "kept").exists()


def test_what_cannot_be_done_is_said(files: Files, at: str, tree: Path):
    """Not by permissions: the tests may run as root."""
    a_file = f"{at}{tree}/_log-n%20x.json"
    for fail in (
        lambda: files.read(f"{at}{tree}/absent"),
        lambda: files.entries(f"{at}{tree}/absent"),
        lambda: list(files.below(f"{at}{tree}/absent")),
        lambda: files.make_folder(f"{a_file}/x"),
        lambda: files.write(f"{a_file}/x", b""),
    ):
        with pytest.raises(Failed, match=r"\w+"):
            fail()


@pytest.mark.parametrize(
    ("given", "conf", "environment", "found"),
    [
        ("/logs", (), {}, "file:/logs"),
        ("logs", (), {}, f"file:{os.getcwd()}/logs"),
        ("file:///logs", (), {}, "file:///logs"),
        ("s3a://bucket/logs", (), {}, "s3a://bucket/logs"),
        ("hdfs:/logs", (), {}, "hdfs:/logs"),
        ("", (), {}, ""),
        ("/logs", (("spark.hadoop.fs.defaultFS", "hdfs://store/"),), {}, "/logs"),
        ("/logs", (), {"HADOOP_CONF_DIR": "/etc/hadoop"}, "/logs"),
        ("/logs", (), {"SPARK_ENV_LOADED": "1"}, "/logs"),
        ("/logs", (), {"PYSPARK_SUBMIT_ARGS": "--properties-file x pyspark-shell"}, "/logs"),
        ("/logs", (("spark.executor.memory", "1g"),), {"SPARK_HOME": "/absent"}, "file:/logs"),
    ],
)
def test_what_can_only_be_here(
    given: str, conf: tuple[tuple[str, str], ...], environment: dict[str, str], found: str
):
    assert address(given, conf, environment) == found


def test_settings_of_spark_may_say_that_it_is_elsewhere(tmp_path: Path):
    (tmp_path / "conf").mkdir()
    assert address("/logs", (), {"SPARK_HOME": str(tmp_path)}) == "file:/logs"
    (tmp_path / "conf" / "core-site.xml").touch()
    assert address("/logs", (), {"SPARK_HOME": str(tmp_path)}) == "/logs"
    assert address("/logs", (), {"SPARK_CONF_DIR": str(tmp_path / "conf")}) == "/logs"


def test_what_hadoop_wrote_is_written_over(spark: SparkSession, tmp_path: Path):
    """Hadoop keeps a checksum beside each file, and does not believe what fits it not."""
    for at, content in (("", b"by Hadoop"), ("file:", b"without Java")):
        files_of(spark, f"{at}{tmp_path}").write(f"{at}{tmp_path}/x", content)
    assert files_of(spark, str(tmp_path)).read(f"{tmp_path}/x") == b"without Java"


@pytest.mark.parametrize("given", ["file:/logs/a", "file:///logs/a", "/logs/a"])
def test_an_address_as_a_person_writes_it(given: str):
    assert plain(given) == "/logs/a"
