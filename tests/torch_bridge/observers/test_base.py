"""What holds for every observer: shapes, odd input, state, errors."""

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from onnxq.errors import OptionError, QParamsError  # noqa: E402
from onnxq.quant.qparams import QParams  # noqa: E402
from tests.torch_bridge.observers.oracle import SPECS, batches, make_spec  # noqa: E402
from torch_bridge.fake_quant import FakeQuantize  # noqa: E402
from torch_bridge.observers import OBSERVERS, Observer, observer, register_observer  # noqa: E402

each_observer = pytest.mark.parametrize("kind", OBSERVERS.values(), ids=OBSERVERS)
each_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
each_size = pytest.mark.parametrize("spec", [SPECS[n] for n in ("uint8", "uint8-channel", "block")])


def observed(kind, spec, data):
    out = kind(spec)
    for batch in data:
        out(batch)
    return out


def shape_of(spec, shape):
    if spec.axis is None:
        return ()
    if spec.block:
        return (*shape[: spec.axis], shape[spec.axis] // spec.block, *shape[spec.axis + 1 :])
    return (shape[spec.axis],)


def assert_same(a, b):
    for left, right in zip(a.calculate(), b.calculate(), strict=True):
        assert torch.equal(left, right)


# -- results ----------------------------------------------------------------------------------


@each_observer
@each_spec
@pytest.mark.parametrize("odd", ["normal", "constant", "negative", "zero", "tiny", "huge", "one"])
def test_scale_and_zero_point_are_usable(kind, spec, odd):
    data = {
        "normal": batches(),
        "constant": [torch.full((4, 6, 5), 3.25)],
        "negative": [-batches()[0].abs() - 1],
        "zero": [torch.zeros(4, 6, 5)],
        "tiny": [torch.full((4, 6, 5), 1e-42)],
        "huge": [torch.tensor([-3e38, 3e38]).repeat(4, 6, 5)],
        "one": [torch.full((1, 2, 1), 0.7)],
    }[odd]
    out = observed(kind, spec, data)
    assert out.ready
    scale, zero_point = out.calculate()
    assert scale.dtype == torch.float32
    assert zero_point.dtype == torch.int32
    assert scale.shape == zero_point.shape == shape_of(spec, data[0].shape)
    assert torch.isfinite(scale).all()
    # The table that travels to the ONNX side refuses what no runtime could use.
    QParams(
        "x", spec.qtype, scale.numpy(), zero_point.numpy(), spec.axis, spec.block, spec.lo, spec.hi
    )
    if spec.symmetric:
        assert not zero_point.any()


@each_observer
@pytest.mark.parametrize("symmetric", [True, False])
def test_an_all_zero_channel_leaves_the_others_alone(kind, symmetric):
    data = [batch.clone() for batch in batches()]
    for batch in data:
        batch[2] = 0
    spec = make_spec("int8", symmetric=symmetric, axis=0)
    scale, zero_point = observed(kind, spec, data).calculate()
    others = [0, 1, 3]
    want_scale, want_zero = observed(kind, spec, [b[others] for b in data]).calculate()
    assert torch.equal(scale[others], want_scale)
    assert torch.equal(zero_point[others], want_zero)
    assert scale[2] > 0


@each_observer
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_a_channel_is_treated_like_a_tensor_of_its_own(kind, axis):
    spec = make_spec("int4", symmetric=False, axis=axis)
    scale, zero_point = observed(kind, spec, batches()).calculate()
    single = make_spec("int4", symmetric=False)
    for channel in range(len(scale)):
        data = [batch.select(axis, channel) for batch in batches()]
        want = observed(kind, single, data).calculate()
        assert (scale[channel], zero_point[channel]) == want


@each_observer
def test_a_block_is_treated_like_a_tensor_of_its_own(kind):
    scale, _ = observed(kind, make_spec("int4", axis=1, block=3), batches()).calculate()
    assert scale.shape == (4, 2, 5)
    data = [batch[1, 3:6, 2] for batch in batches()]
    assert scale[1, 1, 2] == observed(kind, make_spec("int4"), data).calculate()[0]


@each_observer
@each_spec
def test_an_empty_tensor_changes_nothing(kind, spec):
    out = kind(spec)
    out(torch.empty(4, 6, 0))
    assert not out.ready
    for batch in batches():
        out(batch)
        out(torch.empty(4, 6, 0))
        out(torch.empty(0))
    assert_same(out, observed(kind, spec, batches()))


@each_observer
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_input_is_read_as_float32(kind, dtype):
    data = [batch.to(dtype) for batch in batches()]
    plain = [batch.float() for batch in data]
    assert_same(observed(kind, SPECS["uint8"], data), observed(kind, SPECS["uint8"], plain))


@each_observer
def test_input_is_neither_changed_nor_tracked(kind):
    x = batches()[0].transpose(0, 2).requires_grad_()  # not contiguous
    before = x.detach().clone()
    out = observed(kind, SPECS["int8-channel"], [x])
    assert torch.equal(x, before)
    assert x.grad is None
    assert not any(t.requires_grad for t in (*out.calculate(), *out.buffers()))


# -- state ------------------------------------------------------------------------------------


def size(module):
    return sum(buffer.numel() * buffer.element_size() for buffer in module.buffers())


@each_observer
@each_size
def test_memory_is_bounded(kind, spec):
    out = observed(kind, spec, batches(1))
    before = size(out)
    for batch in batches(20, (4, 6, 5), seed=1):
        out(batch)
    assert size(out) == before
    scales = max(1, out.min_val.numel())
    assert before <= scales * 8 * 4200 + 100
    held = [v for v in vars(out).values() if isinstance(v, torch.Tensor)]
    assert held == []  # all state is in buffers


@each_observer
@each_size
def test_checkpoints_carry_on_where_they_stopped(kind, spec):
    first, second = batches(4)[:2], batches(4)[2:]
    out = observed(kind, spec, first)
    file = io.BytesIO()
    torch.save(out.state_dict(), file)
    file.seek(0)
    loaded = kind(spec)
    loaded.load_state_dict(torch.load(file, weights_only=True), strict=True)
    assert_same(loaded, out)
    for batch in second:
        loaded(batch)
    assert_same(loaded, observed(kind, spec, batches(4)))


@each_observer
def test_checkpoints_of_an_unused_observer_load(kind):
    used = observed(kind, SPECS["int8-channel"], batches())
    used.load_state_dict(kind(SPECS["int8-channel"]).state_dict(), strict=True)
    assert not used.ready
    for batch in batches():
        used(batch)
    assert_same(used, observed(kind, SPECS["int8-channel"], batches()))


def test_a_range_per_channel_is_not_used_per_tensor():
    out = OBSERVERS["minmax"](SPECS["int8"])
    out.name = "conv1.input"
    out.load_state_dict(
        observed(OBSERVERS["minmax"], SPECS["int8-channel"], batches()).state_dict()
    )
    with pytest.raises(QParamsError, match=r"'conv1\.input' has 4 ranges.*per tensor"):
        out.calculate()


def test_a_range_per_tensor_serves_every_channel():
    out = OBSERVERS["minmax"](SPECS["int8-channel"])
    out.load_state_dict(observed(OBSERVERS["minmax"], SPECS["int8"], batches()).state_dict())
    out(torch.zeros(4, 6, 5))
    (want, _) = observed(OBSERVERS["minmax"], SPECS["int8"], batches()).calculate()
    assert out.calculate()[0].tolist() == [want] * 4


@each_observer
@each_size
def test_reset_forgets_everything(kind, spec):
    out = observed(kind, spec, batches(2, (3, 4, 7), seed=5))
    out.reset()
    assert not out.ready
    assert size(out) == size(kind(spec))
    for batch in batches():
        out(batch)
    assert_same(out, observed(kind, spec, batches()))


@each_observer
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_are_independent(kind, duplicate):
    out = observed(kind, SPECS["int8-channel"], batches())
    before = out.state_dict()
    other = duplicate(out)
    assert_same(other, out)
    other.load_state_dict(observed(kind, SPECS["int8-channel"], batches(1, (7, 3, 3))).state_dict())
    assert other.calculate()[0].shape == (7,)
    assert all(torch.equal(before[k], v) for k, v in out.state_dict().items())


@each_observer
def test_a_model_turned_to_half_goes_on_observing(kind):
    out = observed(kind, SPECS["int8-channel"], batches()).half()
    out(batches()[1].half())
    scale, _ = out.calculate()
    assert scale.dtype == torch.float32
    assert torch.isfinite(scale).all()


# -- errors -----------------------------------------------------------------------------------


@each_observer
@pytest.mark.parametrize("spec", [SPECS["int8"], SPECS["uint8-channel"]], ids=["tensor", "channel"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_value_that_is_not_finite_is_a_named_error(kind, spec, value):
    out = kind(spec)
    out.name = "layer1.conv.weight"
    out(batches()[0])
    before = {k: v.clone() for k, v in out.state_dict().items()}
    bad = batches()[0].clone()
    bad[1, 2, 3] = value
    with pytest.raises(QParamsError, match=r"'layer1\.conv\.weight' got .*of 120 values") as caught:
        out(bad)
    assert ("1 NaN" if value != value else "1 infinite") in caught.value.what
    assert caught.value.fix
    assert all(torch.equal(before[k], v) for k, v in out.state_dict().items())


def test_float64_beyond_float32_is_said():
    with pytest.raises(QParamsError, match="beyond float32"):
        OBSERVERS["minmax"](SPECS["int8"])(torch.tensor([1e300], dtype=torch.float64))


@each_observer
def test_no_data_is_an_error(kind):
    out = kind(SPECS["int8"])
    out.name = "fc.input"
    with pytest.raises(QParamsError, match=r"'fc\.input' has not seen any data"):
        out.calculate()


@pytest.mark.parametrize(
    ("spec", "shape", "what"),
    [
        (make_spec(axis=2), (3, 4), r"along axis 2, which shape \[3, 4\]"),
        (make_spec(axis=-3), (3, 4), r"along axis -3"),
        (make_spec(axis=0), (5, 4), r"has seen \[3\] channels, and now \[5\]"),
        (make_spec(axis=1, block=4), (3, 6), r"blocks of 4, which do not divide axis 1"),
    ],
)
def test_a_shape_that_does_not_match_is_an_error(spec, shape, what):
    out = OBSERVERS["minmax"](spec)
    if spec.axis == 0:
        out(torch.ones(3, 4))
    with pytest.raises(QParamsError, match=what):
        out(torch.ones(shape))


def test_unknown_observers_are_named_with_near_matches():
    assert observer("ema-mse") is OBSERVERS["ema-mse"]
    with pytest.raises(OptionError, match="no observer 'min-max'") as caught:
        observer("min-max")
    assert "'minmax'" in caught.value.fix


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ema-minmax", {"ema_ratio": 1.0}),
        ("ema-minmax", {"ema_ratio": -0.1}),
        ("percentile", {"quantile": 0.4}),
        ("percentile", {"bins": 1000}),
        ("percentile", {"bins": 8}),
        ("ema-quantile", {"quantile": 1.1}),
        ("ema-quantile", {"bins": 0}),
        ("mse", {"candidates": 101}),
        ("mse", {"power": 0}),
        ("ema-mse", {"candidates": 0}),
        ("clip-std", {"std_scale": 0}),
        ("minmax-floor", {"tries": 0}),
        ("pot-mode", {"max_exponent": 121}),
        ("histogram-kl", {"stride": 0}),
    ],
)
def test_options_without_meaning_are_errors(name, options):
    (option,) = options
    with pytest.raises(OptionError, match=f"{option} is"):
        OBSERVERS[name](SPECS["int8"], **options)


def test_the_names_are_the_documented_ones():
    assert set(OBSERVERS) == {
        *("minmax", "ema-minmax", "percentile", "ema-quantile", "mse", "ema-mse", "clip-std"),
        *("lsq", "lsq-plus", "minmax-floor", "pot-mode", "histogram-kl"),
    }
    assert all(issubclass(kind, Observer) for kind in OBSERVERS.values())


# -- observers that do it wrong ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "found", "what"),
    [
        ("propose", lambda low, high: (high, low), "low > high from propose"),
        ("merge", lambda low, high: (high, low), "low > high from merge"),
        ("range", lambda low, high: (high, low), "low > high from range"),
        ("propose", lambda low, high: (low * torch.nan, high), "NaN from propose"),
        ("propose", lambda low, high: None, "None from propose"),
        ("propose", lambda low, high: low, "one tensor from propose"),
        ("propose", lambda low, high: (0.0, 1.0), "not two tensors"),
        ("propose", lambda low, high: (low.expand(3), high.expand(3)), "not []"),
    ],
)
def test_what_is_no_range_is_an_error_that_names_the_method(method, found, what):
    class Wrong(Observer):
        def _found(self, *given):
            return found(torch.tensor(-1.0), torch.tensor(2.0))

    setattr(Wrong, method, Wrong._found)
    out = Wrong(SPECS["uint8"])
    with pytest.raises(QParamsError, match="the Wrong observer of 'input'") as caught:
        FakeQuantize(out.spec, out, "input").observe(torch.tensor([-1.0, 2.0]))
    assert what in caught.value.what
    assert caught.value.fix.startswith(f"{method}() of Wrong must return (low, high)")


def test_only_tensors_are_remembered():
    with pytest.raises(OptionError, match="remembers 3 as 'k'"):
        Observer(SPECS["uint8"]).remember("k", 3)


@pytest.mark.parametrize(
    ("method", "gives", "message"),
    [
        ("scale", -1.0, r"got a float from scale\(\), not a tensor"),
        ("scale", torch.tensor(-1.0), r"scale from scale\(\) that is not positive"),
        ("scale", (torch.tensor(1.0),) * 2, r"got a tuple from scale\(\)"),
        ("scale", torch.ones(3), r"got shape \[3\] from scale\(\), not \[\]"),
        ("grid", torch.tensor(1.0), r"no pair from grid\(\)"),
        ("grid", (torch.tensor(1.0), 3), r"no tensor of zero points from grid\(\)"),
        ("grid", (torch.tensor(1.0), torch.tensor(300)), r"zero point 300 from grid\(\)"),
        ("grid", (torch.tensor(1.0), torch.tensor(3.4)), r"zero point 3.4 from grid\(\)"),
    ],
)
def test_a_wrong_grid_names_the_method(method, gives, message):
    kind = type("Mine", (Observer,), {method: lambda self: gives})
    with pytest.raises(QParamsError, match=rf"the Mine observer .*{message}") as caught:
        observed(kind, SPECS["uint8"], batches()).calculate()
    assert f"{method}() of Mine must return" in caught.value.fix


def test_a_method_given_as_an_observer_is_told_to_be_one() -> None:
    with pytest.raises(OptionError, match="belongs to a method") as caught:
        observer("percentile:99.9")
    assert '{"method": "percentile:99.9"}' in caught.value.fix


def test_a_symmetric_quantizer_has_no_zero_point_of_an_observer():
    kind = type("Mine", (Observer,), {"grid": lambda self: (self.scale(), torch.tensor(3))})
    with pytest.raises(
        QParamsError, match=r"zero point 3 from grid\(\), but its quantizer is"
    ) as e:
        observed(kind, SPECS["int8"], batches()).calculate()
    assert "let grid() of Mine return zeros" in e.value.fix


def test_a_range_of_zeros_of_other_data_names_the_method():
    kind = type("Mine", (Observer,), {"range": lambda self: (self.min_val * 0, self.max_val * 0)})
    with pytest.raises(QParamsError, match=r"got 0..0 from range\(\), though the data is not 0"):
        observed(kind, SPECS["uint8"], batches()).calculate()


def test_a_misspelt_method_is_no_silent_min_max():
    kind = type("Mine", (Observer,), {"observer": "mine", "propos": lambda self, *given: given})
    with pytest.raises(OptionError, match="Mine defines 'propos'") as caught:
        register_observer(kind)
    assert caught.value.fix.startswith("write 'propose'")
