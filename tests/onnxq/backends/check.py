"""What tests of backends have in common."""

from __future__ import annotations

import onnxq
from onnxq.backend import chosen_backend, find_backend
from onnxq.graph import Model
from onnxq.workflows.convert import Conversion
from tests.models.networks import quantized, samples


def proven_by_files(name: str, network: str, *, qdq: bool = False) -> dict[str, str]:
    """Convert a network; the texts beside the clean model, each proven exactly by itself.

    `qdq`: whether there is a QDQ model as well, which comes first and is run as it is.
    """
    done = onnxq.convert(quantized(network, find_backend(name)), name, data=samples(network))
    texts = {a.suffix: a.content for a in done.artifacts if isinstance(a.content, str)}
    assert done.proven
    assert len(done.proofs) == len(texts) + qdq
    for proof in done.proofs:
        by_range = "ranges" in proof.what
        assert proof.report.outputs
        assert all(o.max <= (2**-23 if by_range else 0.0) for o in proof.report.outputs), proof.what
    clean = [a.content for a in done.artifacts if isinstance(a.content, Model)][-1]
    assert not clean.nodes("onnxq::FakeQuantize", "QuantizeLinear", "DequantizeLinear")
    return texts


def proven(name: str, network: str, variant: str | None = None) -> Conversion:
    """A network quantized for the backend, converted and proven.

    Read back, it gives the numbers of the source to the bit of a float sum.
    """
    backend = chosen_backend(name, variant)
    done = onnxq.convert(quantized(network, backend), name, variant=variant, data=samples(network))
    assert done.proven, [(p.what, p.refused, p.report.worst) for p in done.proofs]
    assert not any(f.severity == "error" for f in done.findings)
    for proof in done.proofs:
        if "deployed" not in proof.what:
            assert all(o.max <= (0 if o.unit == "steps" else 1e-6) for o in proof.report.outputs)
    return done
