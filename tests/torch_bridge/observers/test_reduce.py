"""Two processes that share the work end with the state of one that did it all."""

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from onnxq.errors import QParamsError  # noqa: E402
from tests.torch_bridge.observers.oracle import SPECS, batches  # noqa: E402
from tests.torch_bridge.two_processes import in_two_processes  # noqa: E402
from torch_bridge.observers import OBSERVERS  # noqa: E402
from torch_bridge.observers.reduce import largest, total  # noqa: E402

NAMES = ("int8", "uint8", "int8-channel", "uint8-channel", "pot")
ALL = [(name, kind, spec) for name, kind in OBSERVERS.items() for spec in NAMES]


def shared_work():
    """Batches of 10 samples on the last axis; the last one has data for the first process only."""
    data = batches(5, (4, 6, 10))
    data[1] = data[1].relu()  # exact zeros, which some observers leave out
    return data


def share(batch, index, rank):
    if index == 4:
        return batch if rank == 0 else batch[..., :0]
    return batch[..., :7] if rank == 0 else batch[..., 7:]  # unequal halves


def observe_all(data):
    out = {}
    for name, kind, spec in ALL:
        observer = kind(SPECS[spec])
        for batch in data:
            observer(batch)
        scale, zero_point = observer.calculate()
        out[name, spec] = {"scale": scale, "zero_point": zero_point, **observer.state_dict()}
    return out


def work(rank):
    mine = torch.tensor([rank + 1.0, -rank])
    out = {"total": total(mine), "largest": largest(mine), "mine": mine}
    out["states"] = observe_all([share(b, i, rank) for i, b in enumerate(shared_work())])
    out["errors"] = [bad_value_on_the_second(rank, kind) for kind in OBSERVERS.values()]
    return out


def bad_value_on_the_second(rank, kind):
    observer = kind(SPECS["int8"])
    observer.name = "act"
    try:
        observer(torch.tensor([1.0, float("nan") if rank else 2.0]))
    except QParamsError as error:
        return error.what
    return "no error"


def test_two_processes_equal_one(tmp_path):
    first, second = in_two_processes(work, tmp_path)
    assert first["total"].tolist() == second["total"].tolist() == [3, -1]
    assert first["largest"].tolist() == second["largest"].tolist() == [2, 0]
    assert second["mine"].tolist() == [2, -1]  # the input is left alone
    alone = observe_all(shared_work())
    assert len(alone) == 12 * len(NAMES)
    for key, want in alone.items():
        for got in (first["states"][key], second["states"][key]):
            assert got.keys() == want.keys()
            different = [part for part in want if not torch.equal(got[part], want[part])]
            assert different == [], (key, different)
    assert all("'act' got" in what and "another process" in what for what in first["errors"])
    assert all("'act' got 1 NaN and 0 infinite of 2" in what for what in second["errors"])


def test_alone_nothing_is_changed():
    x = torch.tensor([1.0, 2.0])
    assert total(x) is x
    assert largest(x) is x
