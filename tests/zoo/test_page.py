"""The page about architectures."""

from __future__ import annotations

from typing import Any

from tests.zoo import page


def row(name: str, backend: str = "onnxruntime", **more: Any) -> dict[str, Any]:
    return {"library": "timm", "name": name, "backend": backend, **more}


def file(quantized: int, *, proven: bool = True, unproven: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"proven": proven, "unproven": unproven, "products": 3, "quantized": quantized}


GOOD: Any = {"capture": "export", "products": 3, "quantized": 3, "seconds": 1.5}
ROWS = {
    "timm/good": row("good", **GOOD, exporters={"torchscript": file(3), "dynamo": file(3)}),
    "timm/half": row(
        "half", capture="fx", products=3, quantized=2, float=["LSTM | one function"],
        exporters={
            "torchscript": file(2, proven=False, unproven=("'y' is off",)),
            "dynamo": {"failed": "SaveError: no"},
        },
    ),
    "timm/bad": row("bad", failed="make: no"),
    "timm/good for qnn": row(
        "good", "qnn", **GOOD, exporters={"torchscript": file(3), "dynamo": file(2)}
    ),
    "timm/good for snpe": row("good", "snpe", failed="prepare: no"),
}  # fmt: skip


def test_a_line_for_each() -> None:
    text = page.text(ROWS)
    assert "| timm | good | export | 3 of 3 | 3 of 3, proven | 3 of 3, proven | 1.5 |  |" in text
    assert (
        "| timm | half | fx | 2 of 3 | 2 of 3, not proven | failed |  | torchscript: 'y' is off; "
        "dynamo: SaveError: no; float: LSTM \\| one function |" in text
    )
    assert "| timm | bad |  |  | failed | failed |  | make: no |" in text


def test_the_sums() -> None:
    text = page.text(ROWS)
    told = "architectures are deployed and proven"
    assert f"- onnxruntime, torchscript: 1 of 2 {told}, 1 failed; 83.3% of all" in text
    assert f"- onnxruntime, dynamo: 1 of 2 {told}, 2 failed; 100.0% of all" in text


def test_a_column_for_each_other_backend() -> None:
    text = page.text(ROWS)
    assert "| architecture | qnn | snpe |" in text
    assert "| good | 3 of 3, proven / 2 of 3, proven | failed |" in text
    assert "- good for snpe: prepare: no" in text


def test_rows_are_kept_by_backend() -> None:
    assert page.key("timm", "good", "onnxruntime") == "timm/good"
    assert page.key("timm", "good", "qnn") == "timm/good for qnn"
    assert page.proven(ROWS["timm/good"])
    assert not page.proven(ROWS["timm/half"])
    assert not page.proven(ROWS["timm/bad"])
