"""The state of the float model, out of a prepared model and into it.

    load_float_state(q, torch.load("float.pt"))      weights trained in float
    net.load_state_dict(float_state(q))              what training made of them

Names are those of the float model. Scales and ranges take no part: they are in `q.state_dict()`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from onnxq.errors import OptionError, UnsupportedModelError, near_matches
from onnxq.parsing.argument_types import takes
from torch_bridge.export import unwrapped
from torch_bridge.insertion.float_names import EXTRA, FloatNames, joined
from torch_bridge.state import quantizers

_SHOWN = 5
_PREFIXES = ("module.", "_orig_mod.")
"""What wrappers put before every name."""


@takes(model=nn.Module)
def float_state(model: nn.Module) -> dict[str, Any]:
    """The state of the float model that `model` was prepared from, with its values of now.

    Entries that the graph does not read have the values that they had, or that were loaded.
    """
    prepared, names = _prepared(model)
    state = prepared.state_dict()
    found = dict(names.unused)
    for name, places in names.places.items():
        gone = [place for place in places if place not in state]
        if gone:
            raise UnsupportedModelError(
                f"'{gone[0]}', which was '{name}', is not in the model any more: its batch norm is "
                "folded away, or the layer was replaced",
                fix="take the float state before folding, or from a copy",
            )
        found[name] = joined([_whole(state[place]) for place in places])
    order = {name: at for at, name in enumerate(names.order)}
    return dict(sorted(found.items(), key=lambda entry: order[entry[0]]))


@takes(model=nn.Module, state=Mapping)
def load_float_state(model: nn.Module, state: Mapping[str, Any], *, strict: bool = True) -> None:
    """Load the state_dict of the float model into the model prepared from it.

    Ranges are not in it: calibrate afterwards.

    Args:
        model: the result of `prepare`.
        state: names and values as in the float model.
        strict: refuse missing and unknown names. Wrong sizes are refused in any case.
    """
    prepared, names = _prepared(model)
    known = [*names.places, *names.unused]
    if strict:
        _check_names(state, known)
    target = prepared.state_dict(keep_vars=True)
    pairs = [(name, value) for name, value in state.items() if name in names.places]
    _check_sizes(pairs, names, target)
    for name, value in pairs:
        _put(value, names.places[name], target, prepared)
    for name in names.unused.keys() & state.keys():
        names.unused[name] = copy.deepcopy(state[name])
    ranges = sum(each.initialised for each in quantizers(prepared).values())
    if ranges:
        warnings.warn(
            f"{ranges} quantizers keep the ranges of the weights that were there before: calibrate "
            "again",
            UserWarning,
            stacklevel=3,
        )


def _prepared(model: nn.Module) -> tuple[nn.Module, FloatNames]:
    found = unwrapped(model)
    names = getattr(found, "onnxq_float_names", None)
    if not isinstance(names, FloatNames):
        raise UnsupportedModelError(
            f"{type(found).__name__} was not prepared",
            fix="give the result of torch_bridge.prepare; a float model loads its state itself",
        )
    return found, names


def _check_names(state: Mapping[str, Any], known: Collection[str]) -> None:
    missing = [name for name in known if name not in state]
    unknown = [name for name in state if name not in known]
    if not missing and not unknown:
        return
    words = [
        f"{len(names)} names are {what}: {_listed(names)}"
        for what, names in (("missing", missing), ("not those of the float model", unknown))
        if names
    ]
    prefix = next((p for p in _PREFIXES if all(n.startswith(p) for n in state)), "")
    if prefix and unknown:
        fix = f"take the wrapper's '{prefix}' off the names: name.removeprefix('{prefix}')"
    elif unknown:
        fix = f"for '{unknown[0]}': {near_matches(unknown[0], known)}"
    else:
        fix = "give the whole state, or strict=False to keep what is there"
    raise OptionError("the state does not match the float model: " + "; ".join(words), fix=fix)


def _check_sizes(
    pairs: list[tuple[str, Any]], names: FloatNames, target: Mapping[str, Any]
) -> None:
    for name, value in pairs:
        if name.endswith(EXTRA):
            continue
        parts = [target[place] for place in names.places[name]]
        rows = [sum(len(p) for p in parts)] if len(parts) > 1 else []
        size = [*rows, *parts[0].shape[len(rows) :]]
        if list(value.shape) != size:
            raise OptionError(
                f"'{name}' has shape {list(value.shape)}, and in the prepared model {size}",
                fix="load the state of the same architecture",
            )


def _put(
    value: Any, places: tuple[str, ...], target: Mapping[str, Any], prepared: nn.Module
) -> None:
    if places[0].endswith(EXTRA):
        path = places[0].removesuffix(EXTRA).removesuffix(".")
        prepared.get_submodule(path).set_extra_state(value)
        return
    tensors = [target[place] for place in places]
    several = len(tensors) > 1
    parts = torch.split(value, [len(t) for t in tensors]) if several else (value,)
    with torch.no_grad():
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(_like(part, tensor))


def _whole(value: Any) -> Any:
    """A tensor, gathered from all processes if it is sharded."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def _like(value: Tensor, target: Any) -> Tensor:
    """`value`, sharded as `target` is."""
    if not hasattr(target, "full_tensor"):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(target.device), target.device_mesh, target.placements)


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
