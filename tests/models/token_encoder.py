"""A small encoder of tokens: an embedding, attention with a mask of -1e4, a block with Relu."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.graph import Model
from tests.models.build import parse_filled

TOKENS, WORDS, WIDTH = 6, 20, 8


def token_encoder() -> Model:
    """Two integer inputs: `ids`, and `seen`, which is 0 where there is no word."""
    model = parse_filled(
        f"""g (int64[N,{TOKENS}] ids, int64[N,{TOKENS}] seen) => (float[N,{TOKENS},{WIDTH}] y)
        <float one = {{1}}, float most = {{-10000}}, float root = {{2.8}}, int64[1] at = {{1}}> {{
        h = Gather(table, ids)
        s = Cast<to=1>(seen)
        hidden = Sub(one, s)
        filled = Mul(hidden, most)
        mask = Unsqueeze(filled, at)
        q = MatMul(h, wq)
        k = MatMul(h, wk)
        v = MatMul(h, wv)
        kt = Transpose<perm=[0,2,1]>(k)
        product = MatMul(q, kt)
        score = Div(product, root)
        masked = Add(score, mask)
        share = Softmax<axis=-1>(masked)
        mixed = MatMul(share, v)
        sum = Add(h, mixed)
        f = MatMul(sum, wf)
        r = Relu(f)
        y = MatMul(r, wo)
        }}""",
        **{name: (WIDTH, WIDTH) for name in ("wq", "wk", "wv", "wf", "wo")},
        table=(WORDS, WIDTH),
    )
    for node in model.nodes():
        node.name = f"/{node.outputs[0].name}"
    return model


def token_samples(count: int = 12) -> list[dict[str, Any]]:
    """Sentences of different lengths."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(2, TOKENS + 1, size=count)
    return [
        {
            "ids": rng.integers(0, WORDS, size=(1, TOKENS)),
            "seen": (np.arange(TOKENS) < length).astype(np.int64)[None],
        }
        for length in lengths
    ]


__all__ = ["token_encoder", "token_samples"]
