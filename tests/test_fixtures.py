"""Models quantized by other tools: read, written again and converted, bit for bit.

The files lie beside the repository (`../shared/fixtures`) and are not part of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq import runtime
from onnxq.errors import OnnxqError
from onnxq.fake_quantize import FAKE_QUANTIZE
from onnxq.graph import load
from passes.read_qdq import ReadQdq
from passes.to_qdq import ToQdq
from tests.build import apply, bit_equal

FOLDER = Path(__file__).parent.parent.parent / "shared" / "fixtures"
FILES = sorted(FOLDER.glob("*/*/model.onnx"))
NAMES = [f"{p.parent.parent.name}/{p.parent.name}" for p in FILES]

INVALID = {
    "A1/modelopt-int4-awqclip": "blocks run along axis 1, the file says axis 0",
    "A2/onnxnc-static-qdq-u8s8-pc": "axis 1 of a bias of rank 1",
}
"""Files that break ONNX's rules and are refused by name, and how they do."""

pytestmark = pytest.mark.skipif(not FILES, reason="no ../shared/fixtures beside the repository")


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_qdq_is_read_written_and_converted(path: Path) -> None:
    name = f"{path.parent.parent.name}/{path.parent.name}"
    model = load(path)
    if name in INVALID:
        with pytest.raises(OnnxqError, match="axis"):
            apply(model, ReadQdq())
        return
    canonical, _ = apply(model, ReadQdq())
    if not canonical.nodes(FAKE_QUANTIZE):
        pytest.skip("no QDQ of integers in this file")
    written, _ = apply(canonical, ToQdq())
    try:
        source = runtime.reference(path)
    except OnnxqError as error:
        pytest.skip(f"onnxruntime does not load the file itself: {error.what[:80]}")
    (spec,) = source.inputs
    x = np.load(path.parent.parent / "test.npz")["x"][:1].astype(spec.dtype)
    want = source.run({spec.name: x}).values()
    assert bit_equal(runtime.reference(canonical).run({spec.name: x}).values(), want)
    half = any(n.inputs[1].dtype == np.float16 for n in canonical.nodes(FAKE_QUANTIZE))
    if half:
        return  # onnxruntime rounds float16 here or there, depending on what stands around
    assert bit_equal(runtime.reference(written).run({spec.name: x}).values(), want)
    done = onnxq.convert(path, "onnxruntime", data={spec.name: x})
    assert done.proven, [(p.what, p.refused, p.report.to_json()) for p in done.proofs]
    assert done.report is not None
    assert done.report.worst is not None
    assert done.report.worst.max <= 1e-6, "folding moved a code"
