"""What all quantizers share, run for every algorithm."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.canonical.fake_quantize_log import FAKE_QUANTIZE_LOG, data_max_of
from onnxq.errors import OptionError, QParamsError
from tests.torch_bridge.exports import export, quantizers, run
from tests.torch_bridge.fake_quant.quantizers import Given, hard_values, make, spec

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.fake_quant import ALGORITHMS, FakeQuantize, algorithm  # noqa: E402
from torch_bridge.observers import observer  # noqa: E402

NAMES = sorted(ALGORITHMS)
PER_CHANNEL = sorted(set(NAMES) - {"pact", "nnie"})


def ready(name: str, x: Any, **fields: Any) -> FakeQuantize:
    """A quantizer calibrated on x, in eval mode, its rounding final where it learns."""
    made = algorithm(name)(spec("int4", **fields), observer("minmax")(spec("int4", **fields)), "q")
    made.observing = True
    made(x)
    made.observing = False
    made.quantizing = True
    if name == "adaround":
        made.start(x)
        made.harden()
    return made.eval()


def test_all_algorithms_are_registered() -> None:
    assert set(ALGORITHMS) == {
        *("fixed", "lsq", "lsq-plus", "dorefa", "dsq", "pact", "tqt", "nnie", "qil", "apot"),
        *("adaround", "qdrop"),
    }


def test_an_unknown_algorithm_names_near_ones() -> None:
    with pytest.raises(OptionError, match="did you mean 'lsq-plus'"):
        algorithm("lsq_plus")


@pytest.mark.parametrize("name", NAMES)
def test_a_new_quantizer_does_nothing(name: str) -> None:
    quantizer = algorithm(name)(spec(), Given(0.1))
    x = torch.randn(5)
    assert quantizer(x) is x
    assert not quantizer.observer.seen


@pytest.mark.parametrize("name", NAMES)
def test_observing_sets_the_range_and_passes_values_through(name: str) -> None:
    quantizer = algorithm(name)(spec(), observer("minmax")(spec()), "net.act")
    assert quantizer.observer.name == "net.act"
    quantizer.observing = True
    x = torch.randn(50)
    assert quantizer(x) is x
    assert quantizer.initialised
    quantizer.quantizing = True
    assert not torch.equal(quantizer(x), x)


@pytest.mark.parametrize("name", NAMES)
def test_quantizing_without_a_range_names_the_quantizer(name: str) -> None:
    quantizer = algorithm(name)(spec(), Given(0.1), "net.act")
    quantizer.quantizing = True
    with pytest.raises(QParamsError, match=r"'net\.act' has no range yet \(uninitialised\)"):
        quantizer(torch.randn(3))


def test_an_empty_tensor_gives_no_range() -> None:
    quantizer = algorithm("fixed")(spec(), Given(0.1))
    quantizer.observing = True
    quantizer(torch.zeros(0))
    assert not quantizer.initialised


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", NAMES)
def test_observing_nan_or_inf_names_the_quantizer(name: str, bad: float) -> None:
    quantizer = algorithm(name)(spec(), observer("minmax")(spec()), "net.act")
    quantizer.observing = True
    with pytest.raises(QParamsError, match=r"net\.act"):
        quantizer(torch.tensor([1.0, bad]))


@pytest.mark.parametrize("name", NAMES)
def test_a_scale_no_runtime_could_use_is_refused(name: str) -> None:
    quantizer = algorithm(name)(spec(), Given(torch.nan), "net.act")
    quantizer.observing = True
    with pytest.raises(QParamsError, match=r"'net\.act'.*not\s+positive and finite"):
        quantizer(torch.ones(3))


@pytest.mark.parametrize("name", ["lsq", "lsq-plus", "pact", "qil", "apot", "qdrop"])
def test_scales_that_must_be_powers_of_two_are_not_left_to_learn_freely(name: str) -> None:
    with pytest.raises(OptionError, match="powers of two"):
        algorithm(name)(spec(power_of_two=True), Given(0.5))


@pytest.mark.parametrize("name", NAMES)
def test_train_and_eval_give_the_same_values(name: str) -> None:
    x = hard_values(0.25, 20, 25)
    options = {"probability": 1.0} if name == "qdrop" else {}
    quantizer = make(name, spec("int4"), 0.25, **options)
    assert torch.equal(quantizer.train()(x), quantizer.eval()(x))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channel", [False, True])
def test_state_survives_a_checkpoint(name: str, channel: bool) -> None:
    if channel and name not in PER_CHANNEL:
        pytest.skip("one range per tensor")
    x = hard_values(0.25, 20, 25)
    fields = {"axis": 0 if channel else None}
    trained = ready(name, x, **fields)
    file = io.BytesIO()
    torch.save(trained.state_dict(), file)
    file.seek(0)
    fresh = algorithm(name)(spec("int4", **fields), observer("minmax")(spec("int4", **fields)))
    fresh.load_state_dict(torch.load(file, weights_only=True), strict=True)
    assert fresh.quantizing
    assert not fresh.observing
    assert torch.equal(fresh.eval()(x), trained(x))


def test_one_scale_loads_as_the_same_scale_for_all_channels() -> None:
    x = hard_values(0.25, 20, 25)
    one = make("lsq", spec("int4"), 0.25)
    for start in (0.5, torch.full((20,), 0.5)):
        many = make("lsq", spec("int4", axis=0), start)
        many.load_state_dict(one.state_dict())
        assert torch.equal(many(x), one(x))
        assert many.qparams("w").scale.reshape(-1)[0] == np.float32(0.25)


def test_many_scales_do_not_load_as_one() -> None:
    many = make("fixed", spec("int4", axis=0), torch.full((20,), 0.5))
    with pytest.raises(RuntimeError, match="size mismatch for scale"):
        make("fixed", spec("int4"), 0.5).load_state_dict(many.state_dict())


def test_loading_keeps_the_parameters_an_optimizer_holds() -> None:
    fresh = algorithm("lsq")(spec("int4", axis=0), Given(1.0))
    held = fresh.scale
    fresh.load_state_dict(make("lsq", spec("int4", axis=0), torch.full((20,), 0.5)).state_dict())
    assert fresh.scale is held
    assert held.shape == (20,)


@pytest.mark.parametrize("name", NAMES)
def test_quantizers_can_be_copied_and_pickled(name: str) -> None:
    x = hard_values(0.25, 20, 25)
    quantizer = ready(name, x)
    for twin in (copy.deepcopy(quantizer), pickle.loads(pickle.dumps(quantizer))):
        assert torch.equal(twin(x), quantizer(x))
        twin.load_state_dict(quantizer.state_dict())
        twin.set_range(torch.tensor(0.037), torch.tensor(0))
        assert not torch.equal(twin(x), quantizer(x))


# -- a small fit -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_training_lowers_the_loss_and_moves_all_that_learns(name: str) -> None:
    inputs = torch.randn(256, 8)
    weight = torch.randn(4, 8)
    targets = inputs @ weight.T
    of = spec("int4", symmetric=name not in ("lsq-plus",))
    # Weights that are off, and a grid that clips two thirds of them.
    quantizer = make(name, of, 0.06, 0, **({"probability": 0.9} if name == "qdrop" else {}))
    learned = torch.nn.Parameter(weight + 0.5 * torch.randn(4, 8))
    gain = torch.nn.Parameter(torch.ones(()))
    if name == "adaround":
        quantizer = make(name, of, 0.4)
        learned.data.copy_(weight)
        quantizer.start(learned)
        learned.requires_grad_(False)
        with torch.no_grad():  # start from the wrong side of every weight
            quantizer.rounding.mul_(-1)
    if name == "lsq-plus":
        with torch.no_grad():
            quantizer.offset.add_(4.0)
    parameters = [*quantizer.parameters(), learned, gain]
    before = {n: p.detach().clone() for n, p in quantizer.named_parameters()}

    def loss() -> Any:
        return ((inputs @ (quantizer(learned) * gain).T - targets) ** 2).mean()

    assert quantizer.observing is False  # what learns does so without its observer
    first = loss().item()
    optimizer = torch.optim.Adam([p for p in parameters if p.requires_grad], lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    last = loss().item()
    assert last < 0.7 * first, (first, last)
    for n, p in quantizer.named_parameters():
        assert not torch.equal(p, before[n]), n


# -- grids and files ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"nnie"}))
def test_qparams_describe_what_is_computed(name: str) -> None:
    x = hard_values(0.25, 20, 25)
    quantizer = ready(name, x)
    row = quantizer.qparams("w")
    assert (row.tensor, row.source) == ("w", "q")
    rounded = quantizer.transform(x).detach().numpy()
    assert np.array_equal(row.fake(rounded), quantizer(x).detach().numpy())


@pytest.mark.parametrize("block", [0, 5])
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("name", PER_CHANNEL)
def test_sizes_can_be_known_before_the_range(name: str, axis: int | None, block: int) -> None:
    if block and (axis is None or name in ("apot", "qil")):
        pytest.skip("no blocks")
    x = torch.randn(20, 25)
    fields = {"axis": axis, "block": block, "symmetric": True}
    of = spec("int4", **fields)
    quantizer = algorithm(name)(of, observer("minmax")(of), "q").size_for(x.shape)
    before = {n: p.shape for n, p in quantizer.named_parameters() if n != "rounding"}
    held = dict(quantizer.named_parameters())
    assert not quantizer.initialised
    quantizer.observing = True
    quantizer(x)
    assert before == {n: p.shape for n, p in quantizer.named_parameters() if n != "rounding"}
    assert all(held[n] is p for n, p in quantizer.named_parameters())
    assert quantizer.scale.shape == ready(name, x, **fields).scale.shape


@pytest.mark.parametrize("channel", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_torchscript_writes_one_node(name: str, channel: bool, tmp_path: Path) -> None:
    if channel and name not in PER_CHANNEL:
        pytest.skip("one range per tensor")
    x = hard_values(0.25, 20, 25)
    quantizer = ready(name, x, axis=0 if channel else None)
    model = export(quantizer, x, tmp_path)
    got, want = run(model, x), quantizer(x).detach().numpy()
    if name == "nnie":  # no affine grid: a node of its own
        (node,) = model.nodes(FAKE_QUANTIZE_LOG)
        assert data_max_of(node) == quantizer.data_max
        assert got.tobytes() == want.tobytes()
        return
    (row,) = quantizers(model)
    assert row.same_grid(quantizer.qparams(row.tensor))
    if name in ("dorefa", "qil"):  # tanh and powers differ in their last bit
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=float(row.scale.max()))
        assert (got != want).mean() <= 0.002
    else:
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("kind", ["int2", "int4", "int8", "uint8", "int16", "uint16"])
def test_every_width_exports(kind: str, tmp_path: Path) -> None:
    of = spec(kind, symmetric=False)
    zero = (of.lo + of.hi) // 2 + 1
    x = torch.randn(40) * 20 / of.levels**0.5
    quantizer = make("fixed", of, 10 / of.levels, zero)
    model = export(quantizer, x, tmp_path)
    (row,) = quantizers(model)
    assert (row.qtype.name, row.lo, row.hi, row.zero_point) == (kind, of.lo, of.hi, zero)
    assert run(model, x).tobytes() == quantizer(x).numpy().tobytes()


def test_narrow_ranges_export(tmp_path: Path) -> None:
    x = torch.randn(100)
    for lo, hi in ((-127, 127), (-4, 3), (-64, 63)):
        quantizer = make("lsq", spec(lo=lo, hi=hi), 0.02)
        model = export(quantizer, x, tmp_path)
        (row,) = quantizers(model)
        assert (row.lo, row.hi) == (lo, hi)
        assert run(model, x).tobytes() == quantizer(x).detach().numpy().tobytes()


class Three(torch.nn.Module):
    """A per-tensor, a per-channel and a 16-bit quantizer around one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.act = make("lsq-plus", spec("uint8", symmetric=False), 0.03, 120)
        self.weight = make("lsq", spec("int4", axis=0), torch.rand(5) * 0.1 + 0.05)
        self.out = make("fixed", spec("uint16", symmetric=False), 2e-4, 30_000)
        self.layer = torch.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        y = torch.nn.functional.linear(self.act(x), self.weight(self.layer.weight), self.layer.bias)
        return self.out(y)


@pytest.fixture(scope="session")
def dynamo_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    pytest.importorskip("onnxscript", reason="the dynamo exporter needs it")
    torch.manual_seed(0)
    module, x = Three().eval(), torch.randn(6, 8)
    return module, x, export(module, x, tmp_path_factory.mktemp("dynamo"), dynamo=True)


def test_dynamo_writes_one_node_per_quantizer(dynamo_model: tuple[Any, Any, Any]) -> None:
    module, x, model = dynamo_model
    rows = quantizers(model)
    assert [r.qtype.name for r in rows] == ["uint8", "int4", "uint16"]
    for row, quantizer in zip(rows, (module.act, module.weight, module.out), strict=True):
        assert row.same_grid(quantizer.qparams(row.tensor))
    step = module.out.scale.item()
    assert np.abs(run(model, x) - module(x).detach().numpy()).max() <= 1.001 * step


# -- compilers ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script:DeprecationWarning",
    "ignore:.*autograd.function.Function.* should not be instantiated:DeprecationWarning",
)
def test_a_compiled_module_trains_as_the_eager_one_and_follows_its_switches() -> None:
    x = hard_values(0.25, 20, 25)
    results = []
    for compiled in (False, True):
        quantizer = make("lsq", spec("int4"), 0.25)
        call = torch.compile(quantizer, backend="aot_eager") if compiled else quantizer
        optimizer = torch.optim.SGD(quantizer.parameters(), lr=1e-3)
        for _ in range(3):
            optimizer.zero_grad()
            (call(x) ** 2).sum().backward()
            optimizer.step()
        results.append(call(x).detach())
        quantizer.quantizing = False
        assert torch.equal(call(x), x)
    torch.testing.assert_close(*results)


def test_a_batch_of_zeros_names_the_tensor() -> None:
    of = spec("uint8", symmetric=False)
    quantizer = algorithm("fixed")(of, observer("minmax")(of), "net.act")
    quantizer.observing = True
    with pytest.raises(QParamsError, match=r"'net\.act' observed only zeros"):
        quantizer(torch.zeros(4, 3))
    quantizer(torch.ones(4, 3))  # one of several batches may hold zeros
    quantizer(torch.zeros(4, 3))


def test_negative_values_need_codes() -> None:
    """Zero point 0 of an unsigned type would clip them all."""
    quantizer = algorithm("fixed")(spec("uint8"), observer("minmax")(spec("uint8")), "net.act")
    quantizer.observing = True
    quantizer(torch.rand(4, 3))
    with pytest.raises(QParamsError, match=r"'net\.act' observed negative values, which uint8"):
        quantizer(torch.randn(40))


@pytest.mark.parametrize(
    ("name", "which"),
    [
        # 'qil' prunes what is near 0, and what is pruned gets no gradient.
        *((n, w) for n in sorted({*PER_CHANNEL} - {"adaround", "qil"}) for w in ("minmax", "lsq")),
        *(("lsq", which) for which in ("mse", "lsq-plus", "ema-quantile", "percentile")),
    ],
)
def test_a_weight_that_starts_as_zeros_learns(name: str, which: str) -> None:
    """A channel of zeros, beside one that is none, fits w·x with 8 bits."""
    torch.manual_seed(0)
    of = spec("int8", axis=0, parameter=True)
    quantizer = algorithm(name)(of, observer(which)(of), "net.weight").size_for((2, 16))
    start = torch.zeros(2, 16)
    start[1] = torch.randn(16) / 4
    weight = torch.nn.Parameter(start)
    quantizer.observing = True
    quantizer(weight)
    quantizer.observing, quantizer.quantizing = False, True
    x, wanted = torch.randn(256, 16), torch.randn(2, 16) / 8
    optimiser = torch.optim.Adam([weight, *quantizer.parameters()], lr=1e-2)
    for _ in range(150):
        optimiser.zero_grad()
        ((quantizer(weight) - wanted) @ x.T).square().mean().backward()
        optimiser.step()
    rest = ((quantizer.eval()(weight) - wanted) @ x.T).square().mean(1)
    assert rest[0] < 0.05 * (wanted @ x.T).square().mean(1)[0]
