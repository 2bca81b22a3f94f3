"""The chart: equal bytes for equal results, every shown figure in it, and what is below the baseline told apart."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.chart import main, ratio_text
from bench.errors import BenchError
from bench.results import tabled
from tests.bench.results_files import outcomes, write_results

pytest.importorskip("matplotlib")

TICKS = {"0.1x", "0.2x", "0.5x"}


def texts(path: Path) -> list[str]:
    """What can be read in the picture."""
    return [
        "".join(each.itertext()).strip() for each in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    ]


def test_every_shown_figure_is_in_the_picture(tmp_path: Path) -> None:
    out = tmp_path / "chart.svg"
    assert main([str(write_results(tmp_path / "results.json")), str(out)]) == 0
    seen = texts(out)
    assert {"stream", "large-64k", "paced-5k confirm p99", "paced-5k delivery p50"} <= set(seen)
    assert "paced-5k confirm p99.9" not in seen
    assert {"30.0x", "20.0x", "0.80x", "0.50x", "4.00x", "1x"} <= set(seen)
    assert {"amqpd", "amqpd-python", "below RabbitMQ"} <= set(seen)
    assert any(text.startswith("Times RabbitMQ") for text in seen)


def test_equal_results_give_equal_bytes(tmp_path: Path) -> None:
    file = write_results(tmp_path / "results.json")
    for name in ("one.svg", "two.svg"):
        assert main([str(file), str(tmp_path / name)]) == 0
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_results_without_the_baseline_have_no_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = [each for each in outcomes() if each.broker == "amqpd"]
    file = write_results(tmp_path / "results.json", alone)
    assert main([str(file), str(tmp_path / "chart.svg")]) == 1
    assert "no ratio" in capsys.readouterr().err


def test_ratios_have_three_digits_that_count() -> None:
    assert [ratio_text(ratio) for ratio in (0.789, 3.1, 16.23, 128.4)] == ["0.79x", "3.10x", "16.2x", "128x"]


def test_the_chart_of_the_readme_has_the_figures_of_the_table(tmp_path: Path) -> None:
    docs = Path(__file__).parents[2] / "docs"
    figures = tabled(docs / "performance.md")
    ratios = [ratio_text(row.ratio) for row in figures.shown() if row.ratio is not None]
    seen = texts(docs / "performance.svg")
    assert len(ratios) > 60
    assert sorted(
        text for text in seen if re.fullmatch(r"[0-9.]+x", text) and "." in text and text not in TICKS
    ) == sorted(text for text in ratios if "." in text and text not in TICKS)
    assert {row.label for row in figures.shown()} <= set(seen)


def test_a_page_without_a_table_has_no_chart(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(BenchError, match="no table of figures"):
        tabled(page)
