"""Finding passes, backends and formats: what ships with onnxq, and what other packages add."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from onnxq import discovery
from onnxq.backend import BACKENDS_GROUP, Backend, backends, find_backend
from onnxq.discovery import PASSES_GROUP, Broken, find_pass
from onnxq.errors import OptionError
from onnxq.pass_ import Pass
from onnxq.side_files.side_file import FORMATS_GROUP, SideFile, find_format, formats
from tests.checks.published import published

Publish = Callable[..., None]


@dataclass(frozen=True)
class Mine(Pass):
    """A pass from elsewhere."""

    name: ClassVar[str] = "mine"


@dataclass(frozen=True)
class Usurper(Pass):
    """Wants the name of a pass of onnxq."""

    name: ClassVar[str] = "to-qdq"


@dataclass(frozen=True)
class Wordless(Pass):
    """Has an option that cannot be written."""

    name: ClassVar[str] = "wordless"
    values: tuple[int, ...] = ()


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publish]:
    """Install a distribution with these entry points, which load the objects given."""
    discovery.discover.cache_clear()
    monkeypatch.syspath_prepend(tmp_path)

    def add(distribution: str, group: str = PASSES_GROUP, **entries: object) -> None:
        published(tmp_path, monkeypatch, distribution, group, entries)
        discovery.discover.cache_clear()

    yield add
    discovery.discover.cache_clear()


# -- what ships -----------------------------------------------------------------------------


def test_built_in_passes_are_found_by_name_in_order() -> None:
    known = discovery.passes()
    assert list(known) == sorted(known)
    assert {"fold-batch-norm", "read-qdq", "to-qdq"} <= set(known)
    for name, found in known.items():
        assert isinstance(found, type), found
        assert found.name == name
        assert find_pass(name) is found


def test_built_in_backends_are_found_by_name() -> None:
    known = backends()
    assert {"onnxruntime", "tensorrt"} <= set(known)
    for name, found in known.items():
        assert isinstance(found, Backend), found
        assert found.name == name
        assert find_backend(name) is found


def test_built_in_formats_are_found_by_name() -> None:
    known = formats()
    assert {"onnxq", "aimet-0.6.1", "aimet-1.0.0", "aimet-2.0.0", "mqbench-snpe"} <= set(known)
    assert {"tensorrt-cache", "tensorrt-ranges"} <= set(known)
    for name, found in known.items():
        assert isinstance(found, SideFile), found
        assert found.name == name
        assert find_format(name) is found


def test_discovery_is_done_once() -> None:
    assert discovery.passes() is discovery.passes()


def test_unknown_names_list_near_matches() -> None:
    with pytest.raises(OptionError) as caught:
        find_backend("tensort")
    assert caught.value.what == "unknown backend 'tensort'"
    assert caught.value.fix.startswith("did you mean 'tensorrt'")
    assert caught.value.fix.endswith("? ('onnxq backends' lists all)")
    with pytest.raises(OptionError, match="unknown pass 'drop-identities'") as caught:
        find_pass("drop-identities")
    assert "'drop-identity'" in caught.value.fix


# -- what others add ------------------------------------------------------------------------


def test_a_class_and_a_module_may_be_entry_points(publish: Publish) -> None:
    module = ModuleType("whole")
    theirs = type("Theirs", (Pass,), {"name": "theirs", "__module__": "whole"})
    module.Theirs, module.Mine = theirs, Mine  # type: ignore[attr-defined]
    publish("acme", mine=Mine, all_of_it=module)
    assert find_pass("mine") is Mine
    assert find_pass("theirs") is theirs
    assert find_pass("to-qdq").__module__ == "passes.to_qdq"


def test_a_backend_and_a_module_with_one_may_be_entry_points(publish: Publish) -> None:
    base = find_backend("onnxruntime")
    first = Backend("first", "", base.scheme, base.pipeline, base.outputs, "format")
    second = Backend("second", "", base.scheme, base.pipeline, base.outputs, "format")
    module = ModuleType("whole")
    module.BACKEND = second  # type: ignore[attr-defined]
    publish("acme", BACKENDS_GROUP, one=first, two=module)
    assert find_backend("first") is first
    assert find_backend("second") is second
    assert find_backend("onnxruntime") == base


def test_a_format_and_a_module_with_one_may_be_entry_points(publish: Publish) -> None:
    base = find_format("onnxq")
    first, second = replace(base, name="first"), replace(base, name="second")
    module = ModuleType("whole")
    module.FORMAT = second  # type: ignore[attr-defined]
    publish("acme", FORMATS_GROUP, one=first, two=module, three="onnxq.errors:OnnxqError")
    assert find_format("first") is first
    assert find_format("second") is second
    assert find_format("onnxq") is base
    with pytest.raises(OptionError, match=r"is not an onnxq.side_files.side_file.SideFile"):
        find_format("three")


@pytest.mark.parametrize(
    ("thing", "error"),
    [
        ("no_such_module:Pass", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("onnxq.pass_:NoSuchName", "AttributeError: "),
        (Mine(), "is not a named subclass of onnxq.pass_.Pass"),
        (Pass, "is not a named subclass of onnxq.pass_.Pass"),
        (dict, "is not a named subclass of onnxq.pass_.Pass"),
        (ModuleType("hollow"), "contains no pass"),
        (Wordless, "option 'values' has type"),
    ],
)
def test_a_broken_pass_is_listed_and_raised_only_when_asked_for(
    publish: Publish, thing: Any, error: str
) -> None:
    publish("acme", wordy=thing)
    broken = discovery.passes()["wordy"]
    assert isinstance(broken, Broken)
    assert error in broken.error
    assert (broken.name, broken.distribution) == ("wordy", "acme")
    assert find_pass("to-qdq").name == "to-qdq"
    with pytest.raises(OptionError, match="pass 'wordy' could not be loaded: ") as caught:
        find_pass("wordy")
    assert error in caught.value.what
    assert "'acme'" in caught.value.fix


@pytest.mark.parametrize(
    ("thing", "error"),
    [
        ({"name": "chip"}, "is not an onnxq.backend.Backend"),
        (Backend, "is not an onnxq.backend.Backend"),
        (ModuleType("hollow"), "contains no backend"),
    ],
)
def test_a_broken_backend_is_listed(publish: Publish, thing: Any, error: str) -> None:
    publish("acme", BACKENDS_GROUP, chip=thing)
    broken = backends()["chip"]
    assert isinstance(broken, Broken)
    assert error in broken.error
    with pytest.raises(OptionError, match="backend 'chip' could not be loaded"):
        find_backend("chip")


def test_a_broken_pass_never_hides_one_that_works(publish: Publish) -> None:
    publish("acme", **{"to-qdq": "no_such_module"})
    assert find_pass("to-qdq").__module__ == "passes.to_qdq"
    assert isinstance(discovery.passes()["to-qdq (acme)"], Broken)


def test_a_name_clash_with_onnxq_names_both(publish: Publish) -> None:
    publish("acme", usurper=Usurper)
    with pytest.raises(OptionError) as caught:
        discovery.passes()
    assert caught.value.what == "pass 'to-qdq' is provided by both onnxq and acme"
    assert "uninstall one of them" in caught.value.fix


def test_a_package_that_uses_a_name_twice_is_told_so(publish: Publish) -> None:
    publish("acme", first=Mine, second=type("Other", (Mine,), {}))
    with pytest.raises(OptionError, match="pass 'mine' is provided twice by acme") as caught:
        discovery.passes()
    assert "not that of its entry point" in caught.value.fix


def test_a_name_clash_between_others_names_both(publish: Publish) -> None:
    publish("acme", mine=Mine)
    publish("zenith", mine=type("Mine", (Mine,), {}))
    with pytest.raises(OptionError, match="pass 'mine' is provided by both") as caught:
        find_pass("to-qdq")
    assert "acme" in caught.value.what
    assert "zenith" in caught.value.what
