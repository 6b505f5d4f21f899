"""A prepared model sharded over two processes: it learns what one process learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.distributed.checkpoint.state_dict import (  # noqa: E402
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.tensor import DTensor  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.errors import OptionError  # noqa: E402
from tests.torch_bridge.test_whole_model import Net, images, prepared, same, train  # noqa: E402
from tests.torch_bridge.two_processes import in_two_processes  # noqa: E402

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
X = images()


def calibrate(q: nn.Module, x: Tensor) -> None:
    with torch.no_grad(), tb.calibrating(q):
        q(x)
    tb.enable_quantization(q)


def sharded(rank: int) -> list[dict[str, Any]]:
    mine = X[:4] if rank == 0 else X[4:]
    found = []
    for calibrated_first in (True, False):
        q = prepared(freeze_bn=True)
        if calibrated_first:
            calibrate(q, mine)
        tb.fully_shard(q, large=8 * 8 * 3 * 3)
        if not calibrated_first:
            calibrate(q, mine)
        assert isinstance(q.conv.weight, DTensor)
        assert isinstance(q.stem.weight, DTensor)
        assert not isinstance(q.conv.weight_fake_quant.scale, DTensor)
        train(q, mine)
        whole = tb.float_state(q)  # a collective
        state = get_model_state_dict(q, options=WHOLE)
        found.append({"scales": _scales(q), "float": whole, "state": dict(state)})
    return found


def _scales(q: nn.Module) -> dict[str, Tensor]:
    return {path: each.scale.detach().clone() for path, each in tb.quantizers(q).items()}


def test_two_processes_learn_what_one_learns(tmp_path: Path) -> None:
    first, second = in_two_processes(sharded, tmp_path)
    alone = prepared(freeze_bn=True)
    calibrate(alone, X)
    started = _scales(alone)
    train(alone, X)
    assert _scales(alone)["head.weight_fake_quant"].ne(started["head.weight_fake_quant"]).any()
    for one, other in zip(first, second, strict=True):
        assert same(one["scales"], other["scales"]) == list(started)
        assert same(one["float"], other["float"]) == list(Net().state_dict())
        torch.testing.assert_close(one["scales"], _scales(alone), rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(one["float"], tb.float_state(alone), rtol=1e-4, atol=1e-6)
        state = one["state"]
        again = tb.prepare(Net(), example_inputs=(X,), settings=tb.recipe(state)).eval()
        again.load_state_dict(state)
        torch.testing.assert_close(tb.float_state(again), one["float"], rtol=0, atol=0)
        assert tb.deploy(again, (X,), tmp_path / "out").proven


def test_without_processes() -> None:
    with pytest.raises(OptionError, match="no process group"):
        tb.fully_shard(prepared())
