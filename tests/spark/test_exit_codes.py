"""What a job ends with: 1 only for what is wrong in the books, 2 and one sentence for all else.

What is verified: each thing that may be wrong around a job, by the command line alone; the sentence names the file or
the setting, and no traceback is shown. Not verified: what jobs find (their own tests).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from amqpd_spark.__main__ import main
from tests.spark.log import Log

ROOT = Path(__file__).parents[2]


def called(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


def refused(answer: Result, *words: str) -> None:
    """Exit code 2, and one line on stderr that has the words."""
    assert answer.exit_code == 2, (answer.output, answer.exception)
    (line,) = answer.stderr.splitlines()
    assert line.startswith("amqpd-spark: ")
    for word in words:
        assert word in line
    assert "Traceback" not in answer.output


def small(log: Log) -> Path:
    log.add("started")
    log.add("routed", queue="q", queue_id=1, publication=1, persistent=True, connection="c")
    log.add("acked", queue="q", queue_id=1)
    log.write_as_broker()
    return log.files[0]


@pytest.mark.parametrize("job", ["conservation", "slo", "usage", "security", "compact", "report"])
def test_no_such_folder(spark: SparkSession, job: str, tmp_path: Path):
    refused(called(job, "--input", tmp_path / "none", "--output", tmp_path / "out"), str(tmp_path / "none"))


def test_no_such_folder_for_a_trace(spark: SparkSession, tmp_path: Path):
    refused(called("trace", "--input", tmp_path / "none", "--message-id", "1"), str(tmp_path / "none"))


def garbage(file: Path) -> None:
    file.write_bytes(b"no Parquet at all, whatever its name says")


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def count_as_text(file: Path) -> None:
    table = pq.read_table(file, partitioning=None)
    at = table.schema.get_field_index("count")
    pq.write_table(table.set_column(at, "count", pc.cast(table["count"], pa.string())), file)


def without_reason(file: Path) -> None:
    pq.write_table(pq.read_table(file, partitioning=None).drop_columns(["reason"]), file)


def of_format_2(file: Path) -> None:
    table = pq.read_table(file, partitioning=None)
    pq.write_table(table.replace_schema_metadata({"amqpd.audit.format": "2"}), file)


def with_a_strange_key(file: Path) -> None:
    table = pq.read_table(file, partitioning=None)
    pq.write_table(table.replace_schema_metadata({"amqpd.audit.format": "1", "amqpd.audit.rows": "[]"}), file)


def damaged_rows(file: Path) -> None:
    """The footer is whole."""
    octets = bytearray(file.read_bytes())
    octets[4:80] = b"\xff" * 76
    file.write_bytes(octets)


WRONG: dict[Callable[[Path], None], str] = {
    garbage: "is no whole Parquet file",
    cut_off: "is no whole Parquet file",
    emptied: "is no whole Parquet file",
    count_as_text: "column count is byte_array (String), and should be bigint",
    damaged_rows: "cannot be read",
    without_reason: "has no column reason",
    of_format_2: "has format 2; this amqpd-spark reads 1: install a newer one",
    with_a_strange_key: "amqpd.audit.rows",
}


@pytest.mark.parametrize("spoil", WRONG, ids=lambda each: each.__name__)
def test_a_file_that_is_no_file_of_the_log(
    spark: SparkSession, spoil: Callable[[Path], None], log: Log, tmp_path: Path
):
    file = small(log)
    spoil(file)
    refused(called("conservation", "--input", log.path, "--output", tmp_path / "out"), str(file), WRONG[spoil])


@pytest.mark.parametrize("job", ["slo", "usage", "security", "compact"])
def test_every_job_looks_at_the_files_first(spark: SparkSession, job: str, log: Log, tmp_path: Path):
    file = small(log)
    of_format_2(file)
    refused(called(job, "--input", log.path, "--output", tmp_path / "out"), str(file), "format 2")


def test_a_stream_looks_at_them_too(spark: SparkSession, log: Log, tmp_path: Path):
    file = small(log)
    of_format_2(file)
    answer = called("security", "--stream", "--once", "--input", log.path, "--output", tmp_path / "out")
    refused(answer, str(file), "format 2")


def test_files_of_others_are_passed_over_and_counted(spark: SparkSession, log: Log, tmp_path: Path):
    small(log)
    (log.path / "README.txt").write_text("what these are")
    pq.write_table(pa.table({"price": [1.5]}), log.files[0].parent / "prices.parquet")
    (log.path / ".hidden.parquet").write_bytes(b"of some program")
    answer = called("conservation", "--input", log.path, "--output", tmp_path / "out")
    assert answer.exit_code == 0, answer.output
    assert "1  acked" in answer.stdout
    assert answer.stderr == (
        f"amqpd-spark: 2 files that are not amqpd's were passed over: first {log.path / 'README.txt'}\n"
    )


def test_files_of_a_period_are_read_and_names_are_no_patterns(spark: SparkSession, tmp_path: Path):
    log = Log(tmp_path / "the [log]" / "events")
    small(log)
    (log.files[0].parent / "notes").write_text("mine")
    log.files[0].rename(log.files[0].with_name("n{1}-1-1.parquet"))
    folder = Path(f"{tmp_path}/the log")
    (tmp_path / "the [log]").rename(folder)
    answer = called(
        "conservation", "--input", folder / "events", "--output", tmp_path / "out", "--since", "2026-11-22"
    )
    assert answer.exit_code == 0, answer.output
    assert "1  acked" in answer.stdout


def test_a_folder_without_files_is_an_empty_log(spark: SparkSession, tmp_path: Path):
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "notes").write_text("mine")
    answer = called("conservation", "--input", tmp_path / "events", "--output", tmp_path / "out")
    assert (answer.exit_code, "No messages are in this log" in answer.stdout) == (0, True), answer.output


@pytest.mark.parametrize("job", ["conservation", "slo", "usage", "security", "compact"])
def test_an_output_that_cannot_be_written(spark: SparkSession, job: str, log: Log, tmp_path: Path):
    small(log)
    (tmp_path / "file").write_text("mine")
    refused(called(job, "--input", log.path, "--output", tmp_path / "file" / "out"), str(tmp_path / "file"))
    refused(called(job, "--input", log.path, "--output", tmp_path / "file"), str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("option", ["input", "output"])
def test_a_folder_without_a_name(option: str, log: Log, tmp_path: Path):
    """A variable of the shell that is not set is neither the root of all folders nor the one that one is in."""
    small(log)
    folders = {"input": str(log.path), "output": str(tmp_path / "out")} | {option: ""}
    arguments = [word for name, folder in folders.items() for word in (f"--{name}", folder)]
    refused(called("conservation", *arguments), f"--{option} is empty")


@pytest.mark.parametrize("job", ["conservation", "slo", "usage", "security", "compact"])
def test_an_output_in_the_log(spark: SparkSession, job: str, log: Log):
    small(log)
    before = sorted(log.path.rglob("*"))
    refused(called(job, "--input", log.path, "--output", log.path / "out"), "--output", str(log.path / "out"))
    assert sorted(log.path.rglob("*")) == before


def test_a_page_that_cannot_be_written(spark: SparkSession, tmp_path: Path):
    refused(called("report", "--input", tmp_path, "--output", tmp_path / "none" / "page"), str(tmp_path / "none"))


def test_a_table_is_not_written_over_something_else(spark: SparkSession, log: Log, tmp_path: Path):
    small(log)
    (tmp_path / "out" / "books").mkdir(parents=True)
    (tmp_path / "out" / "books" / "1984.txt").write_text("mine")
    answer = called("conservation", "--input", log.path, "--output", tmp_path / "out")
    refused(answer, str(tmp_path / "out" / "books"), "1984.txt")
    assert (tmp_path / "out" / "books" / "1984.txt").read_text() == "mine"


def test_a_log_that_is_there_is_not_generated_over(spark: SparkSession, tmp_path: Path):
    refused(called("generate", "--output", tmp_path, "--events", "100"), f"{tmp_path} is there already")


def test_nothing_found_is_nothing_wrong_in_the_books(spark: SparkSession, log: Log):
    small(log)
    refused(called("trace", "--input", log.path, "--message-id", "none"), "Nothing in the log has message id none")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["conservation", "--output", "b"], "--input"),
        (["conservation", "--input", "a", "--output", "b", "--window", "often"], "--window"),
        (["conservation", "--input", "a", "--output", "b", "--since", "0001-01-01"], "--since"),
        (["usage", "--input", "a", "--output", "b", "--idle", "1000000000"], "--idle"),
        (["security", "--input", "a", "--output", "b", "--within", "1000000000000"], "--within"),
        (["generate", "--output", "b", "--days", "nan"], "--days"),
        (["generate", "--output", "b", "--start", "9999-01-01"], "--start"),
        (["slo", "--input", "a", "--output", "b", "--objectives", "/none.toml"], "/none.toml"),
        (["dance"], "dance"),
        (["conservation", "--dance"], "--dance"),
    ],
)
def test_arguments_that_are_none(arguments: list[str], words: str):
    refused(called(*arguments), words)


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("amqpd_spark.options.start", interrupted)
    answer = called("usage", "--input", tmp_path / "log", "--output", tmp_path / "out")
    assert answer.exit_code == 130
    assert "Traceback" not in answer.output


def test_what_nobody_foresaw_is_one_sentence_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def failed(*_: object) -> None:
        raise ZeroDivisionError("of the moon\nand more")

    monkeypatch.setattr("amqpd_spark.options.start", failed)
    answer = called("usage", "--input", tmp_path / "log", "--output", tmp_path / "out")
    refused(answer, "the job failed: ZeroDivisionError: of the moon; AMQPD_SPARK_DEBUG=1 shows where")


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "amqpd_spark.report", raising=False)
    refused(called("report", "--help"), "jinja2", "pip install '.[spark]'")


def process(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """As an operator calls it."""
    path = f"{ROOT}:{ROOT / 'spark'}"
    command = [sys.executable, "-m", "amqpd_spark", *map(str, arguments)]
    given = os.environ | {"PYTHONPATH": path} | environment
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=300, check=False)


def test_no_java_is_one_sentence(tmp_path: Path):
    done = process("conservation", "--input", tmp_path / "log", "--output", tmp_path / "out", JAVA_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("amqpd-spark: Spark needs Java")


@pytest.mark.slow
def test_as_a_process_all_is_said_in_one_line(tmp_path: Path):
    log = Log(tmp_path / "events")
    file = small(log)
    # Who says something of Spark wants one, whatever is in the log.
    for setting in (["--memory", "3x"], ["--master", "moon"], []):
        if not setting:
            garbage(file)
        done = process("conservation", "--input", log.path, "--output", tmp_path / "out", *setting)
        assert done.returncode == 2, done.stderr
        said = [line for line in done.stderr.splitlines() if line.startswith("amqpd-spark: ")]
        assert len(said) == 1, done.stderr
        assert (str(file) if not setting else setting[0]) in said[0]
        assert "Traceback" not in done.stderr
