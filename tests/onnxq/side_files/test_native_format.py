"""Models in a target's own files: grouped by format, proven by reading back."""

from __future__ import annotations

from dataclasses import replace

import pytest

import onnxq
from onnxq.backend import OnnxFile, find_backend
from onnxq.side_files.native_format import NativeFile, NativeFormat, models
from tests.models.networks import quantized, samples


def test_files_of_one_format_are_one_model() -> None:
    one, two = (NativeFormat(n, lambda m: {}, lambda f: None) for n in "ab")  # type: ignore[arg-type,return-value]
    files = [NativeFile(f".{i}", f, str(i), "") for i, f in enumerate((one, two, one))]
    assert models(files) == {one: [files[0], files[2]], two: [files[1]]}
    assert models(find_backend("onnxruntime").outputs) == {}


def test_decoding() -> None:
    text = NativeFile(".a", NativeFormat("a", dict, lambda f: None), "a", "")  # type: ignore[arg-type,return-value]
    assert text.decode("é".encode()) == "é"
    assert replace(text, binary=True).decode(b"\xff") == b"\xff"


def test_a_file_that_says_something_else_is_not_proven() -> None:
    backend = find_backend("ncnn")
    (format_,) = models(backend.outputs)

    def doubled(files: dict[str, str | bytes]) -> object:
        model = format_.read(files)
        for node in model.nodes("MatMul"):
            node.op = "MatMul"
            from onnxq.edit import constant, set_input

            weight = node.inputs[1].inputs[0].inputs[0]
            set_input(node, 1, constant(model, "w", 2 * weight.values))
        return model

    lies = replace(format_, read=doubled)
    outputs = tuple(
        replace(o, format=lies) if isinstance(o, NativeFile) else o for o in backend.outputs
    )
    assert isinstance(outputs[0], OnnxFile)
    source = quantized("conv1d", backend)
    done = onnxq.convert(source, replace(backend, outputs=outputs), data=samples("conv1d"))
    failed = [p.what for p in done.proofs if not p.passed]
    assert failed == ["ncnn.param and ncnn.bin (read back)"]
    assert not done.proven


@pytest.mark.parametrize("network", ["resnet", "transformer"])
def test_saved_files_are_those_that_were_proven(network: str, tmp_path: object) -> None:
    backend = find_backend("ncnn")
    done = onnxq.convert(quantized(network, backend), backend, data=samples(network), stem="net")
    names = sorted(p.name for p in done.save(str(tmp_path)))
    assert names == ["net.ncnn.bin", "net.ncnn.param", "net_qdq.onnx"]
