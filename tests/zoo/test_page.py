"""The page about architectures."""

from __future__ import annotations

from tests.zoo import page

ROWS = {
    "timm/good": {
        "library": "timm", "name": "good", "capture": "export", "products": 3, "quantized": 3,
        "proven": True, "seconds": 1.5, "float": [], "cautions": [],
    },
    "timm/half": {
        "library": "timm", "name": "half", "capture": "fx", "products": 3, "quantized": 2,
        "proven": False, "unproven": ["'y' is off"], "float": ["LSTM | one function"],
    },
    "timm/bad": {"library": "timm", "name": "bad", "failed": "make: no"},
}  # fmt: skip


def test_a_line_for_each() -> None:
    text = page.text(ROWS)
    assert "1 of 3 architectures are deployed and proven." in text
    assert "| timm | good | export | 3 of 3 | yes | 1.5 |  |" in text
    assert (
        "| timm | half | fx | 2 of 3 | no |  | 'y' is off; float: LSTM \\| one function |" in text
    )
    assert "| timm | bad |  |  | failed |  | make: no |" in text
