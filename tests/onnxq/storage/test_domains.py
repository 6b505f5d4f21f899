"""The default domain has two names, and changed domains are found."""

from __future__ import annotations

import onnx_graphsurgeon as gs
import pytest
from onnx import helper

from onnxq.storage.domains import changed_domain, domain_of


@pytest.mark.parametrize(
    ("given", "domain"), [(None, ""), ("", ""), ("ai.onnx", ""), ("com.microsoft", "com.microsoft")]
)
def test_domain(given: str | None, domain: str) -> None:
    assert domain_of(gs.Node("Add", domain=given)) == domain


def test_a_node_that_was_made_or_moved_declares_its_domain() -> None:
    node = gs.Node("Add", domain="a")
    assert changed_domain(node)
    node.source = helper.make_node("Add", [], [], domain="a")
    assert not changed_domain(node)
    node.domain = "b"
    assert changed_domain(node)
