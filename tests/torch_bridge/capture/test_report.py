"""The record of a preparation."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch_bridge.capture.report import Decided, Leaf, Product, Report, Row  # noqa: E402

LEAF = Leaf("head", "TraceError: no", "sums stay float")


def test_one_warning_for_all_problems() -> None:
    report = Report("chip", leaves=[LEAF, Leaf("", "TypeError: no", "all stays float")])
    with pytest.warns(UserWarning, match="^prepare for chip:") as caught:
        report.warn()
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "'head': TraceError: no; sums stay float" in text
    assert "the model itself: TypeError" in text
    assert "nothing in the model is quantized for chip" in text


def test_no_problem_no_warning() -> None:
    report = Report("chip", rows=[Row("x_fake_quant", "x", "int8")])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report.warn()
    assert caught == []
    assert list(report.problems()) == []


def test_as_text() -> None:
    report = Report("chip", leaves=[LEAF], notes=["a: fused"], rows=[Row("q", "x", "int8 -8..7")])
    assert str(report).splitlines() == [
        "prepared for chip: 1 quantizers",
        "  captured by torch.fx",
        "  0 of 0 products quantized",
        "  q: x, int8 -8..7",
        "  not traced: 'head': TraceError: no; sums stay float",
        "  a: fused",
    ]


def test_choices_that_are_not_followed_are_told() -> None:
    report = Report("chip", rows=[Row("q", "x", "int8")], cautions=["nothing is smoothed"])
    with pytest.warns(UserWarning, match="nothing is smoothed"):
        report.warn()
    assert str(report).endswith("\n  nothing is smoothed")


def test_the_way_of_capture_and_its_reason_are_told() -> None:
    report = Report("chip", capture="export", capture_reason="FX cannot trace 'head'")
    assert "captured by torch.export: FX cannot trace 'head'" in str(report)


def test_one_line_names_the_products_that_stay_float() -> None:
    report = Report("chip", rows=[Row("q", "x", "int8")], products=[Product("a"), Product("b")])
    assert report.summary() == "2 of 2 products quantized"
    assert list(report.problems()) == []
    report.products += [Product(f"c{i}", "no pattern") for i in range(7)]
    assert report.summary().startswith("2 of 9 products quantized; float: c0 (no pattern); c1 (no")
    assert report.summary().endswith("c4 (no pattern) and 2 more")
    assert list(report.problems()) == [report.summary()]


def test_what_a_user_asked_for_is_shown_and_is_no_problem() -> None:
    products = [Product("a"), Product("b", "excluded", asked=True)]
    rules = [Decided('["b", "float"]', ("b",)), Decided('["b*", {"weight_bits": 4}]', ())]
    row = Row("q", "x", "int8", "lsq from MinMax")
    report = Report("chip", rows=[row], products=products, rules=rules)
    assert list(report.problems()) == []
    assert str(report).splitlines()[2:] == [
        "  1 of 2 products quantized; float as asked: b (excluded)",
        '  rule ["b", "float"]: b',
        '  rule ["b*", {"weight_bits": 4}]: decides nothing, earlier rules match all its layers',
        "  q: x, int8, lsq from MinMax",
    ]
    many = Decided('["*", "float"]', tuple("abcdefg"))
    assert str(many) == 'rule ["*", "float"]: a, b, c, d, e and 2 more'


@pytest.mark.parametrize("rules", [0, 40])
@pytest.mark.parametrize("rows", [3, 400])
@pytest.mark.parametrize("notes", [0, 90])
def test_a_long_record_is_printed_short(rules: int, rows: int, notes: int) -> None:
    report = Report(
        "chip",
        rules=[Decided(f"rule{i}", ("a",)) for i in range(rules)],
        rows=[Row(f"q{i}", "x", "int8") for i in range(rows)],
        notes=[f"note {i}" for i in range(notes)],
    )
    shown = str(report).splitlines()
    assert len(shown) <= 25
    assert len(report.lines()) == 3 + rules + rows + notes
    assert any("q0: x" in line for line in shown)
    assert (str(report) == "\n".join(report.lines())) == (len(report.lines()) <= 25)
    assert len(repr(report).splitlines()) == 1


def test_in_a_notebook() -> None:
    rows = [Row(f"q{i}", "x", "int8", "lsq from MinMax") for i in range(100)]
    page = Report("chip", rows=rows, notes=["a: fused"])._repr_html_()
    for told in ("prepared for chip: 100 quantizers", "q0", "lsq from", "and 40 more", "a: fused"):
        assert told in page
