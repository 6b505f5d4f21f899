"""ncnn; storage and arithmetic in float32 where it is not int8.

Arguments: the .param file, inputs and outputs as .npz; or one folder, whose folders each hold
m.param, m.bin and inputs.npz and get an outputs.npz. A last argument 'plain' lays blobs out element
by element instead of 4, 8 or 16 channels together. Measured on x86: in packs, the outputs of int8
depthwise layers with a multiple of 8 channels are off by up to 2e-4 of the largest; plain, by 2e-7.
"""

import sys
from pathlib import Path

import ncnn
import numpy as np


def run(param: Path, inputs: Path, outputs: Path, packed: bool) -> None:
    """Every output of every sample."""
    net = ncnn.Net()
    net.opt.use_vulkan_compute = False
    net.opt.use_packing_layout = packed
    for option in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
        setattr(net.opt, f"use_{option}", False)
    assert net.load_param(str(param)) == 0, param
    assert net.load_model(str(param.with_suffix(".bin"))) == 0, param
    with np.load(inputs) as loaded:
        # Alive until the end: not even a clone of a blob made from an array owns its memory.
        feeds = {key: np.ascontiguousarray(loaded[key][0]) for key in loaded.files}
    samples: dict[str, dict[str, np.ndarray]] = {}
    for key, value in feeds.items():
        name, _, number = key.rpartition("/")
        samples.setdefault(number, {})[name] = value
    found = {}
    for number, sample in samples.items():
        for output in net.output_names():
            extractor = net.create_extractor()  # one for each output: a second one is garbage
            for name, value in sample.items():
                extractor.input(name, ncnn.Mat(value).clone())
            status, made = extractor.extract(output)
            assert status == 0, output
            found[f"{output}/{number}"] = np.array(made)[None]
    np.savez(outputs, **found)


arguments = [a for a in sys.argv[1:] if a != "plain"]
packed = "plain" not in sys.argv
if len(arguments) == 1:
    for folder in sorted(Path(arguments[0]).iterdir()):
        run(folder / "m.param", folder / "inputs.npz", folder / "outputs.npz", packed)
else:
    param, inputs, outputs = map(Path, arguments)
    run(param, inputs, outputs, packed)
