"""One page for each backend: `python -m tests.suites.backend_pages`.

What the code knows (scheme, files, variants, proof) comes from the backend; what people know
(the vendor's next command, limits) from docs/backend-facts.toml.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from onnxq.backend import Backend, Output, backends
from onnxq.proof.prove import COST
from onnxq.workflows import demo
from onnxq.workflows.convert import Conversion, convert
from tests.suites.snippets import ROOT

FOLDER = ROOT / "docs" / "backends"
FACTS: dict[str, dict[str, Any]] = tomllib.loads(
    (ROOT / "docs" / "backend-facts.toml").read_text(encoding="utf-8")
)


_AS_WRITTEN = {"ncnn", "onnxruntime", "relax"}
"""Names that do not begin with a capital."""


def shipped() -> Iterator[tuple[str, Backend]]:
    """The backends of this project, without those of plug-ins."""
    for name in sorted(path.stem for path in (ROOT / "onnxq" / "backends").glob("[!_]*.py")):
        found = backends()[name.replace("_", "-")]
        assert isinstance(found, Backend)
        yield found.name, found


def converted(name: str) -> Conversion:
    """The network of the demonstration for a backend."""
    source = demo.quantize(demo.build())
    return convert(source, name, allow_requantize=True, stem="demo", count=1)


def page(backend: Backend, made: Conversion) -> str:
    """The whole page."""
    return "\n".join(lines(backend, made, FACTS[backend.name])) + "\n"


def lines(backend: Backend, made: Conversion, facts: dict[str, Any]) -> Iterator[str]:
    """The page, line by line."""
    name = backend.name
    yield f"# {facts['title']}"
    yield from ("", facts["about"], "", f"> {backend.summary}", "")
    yield from ("## From a model to files", "")
    yield from ("```bash", "onnxq demo                    # a quantized network to try it with")
    move = " --allow-requantize" if any(p.what == COST for p in made.proofs) else ""
    yield f"onnxq convert onnxq-demo/demo.onnx --backend {name} -o out/{move}"
    yield from ("```", "")
    if move:
        yield "`--allow-requantize` moves the quantizers of this network to the target's grids,"
        yield "and measures what that costs. A network that was quantized or trained for the target"
        yield "does not need it."
        yield ""
    yield f"From a float model: `onnxq quantize float.onnx -b {name} --data data.npz -o out/`"
    yield "([how](../quantizing.md)). From torch:"
    yield f'`torch_bridge.prepare(net, "{name}", (x,))` ([how](../start-torch.md)).'
    yield from ("", "| file | content |", "|---|---|")
    yield from map(_file, backend.outputs)
    yield from (
        "",
        "## The vendor's next step",
        "",
        "From the vendor's documents; not run by our tests.",
    )
    yield from ("", "```text", facts["next"].strip(), "```")
    yield from ("", "## What it takes", "", "| | |", "|---|---|")
    yield f"| weights | {backend.scheme.weight} |"
    yield f"| activations | {backend.scheme.activation} |"
    bias = backend.scheme.bias
    yield f"| biases | {'float' if bias is None else bias} |"
    yield f"| proven by | {', '.join(backend.consumers) or 'reading the files back'} |"
    if backend.variants:
        yield from (
            "",
            "## Variants",
            "",
            "| `--variant` | what differs | files |",
            "|---|---|---|",
        )
        for key, variant in backend.variants.items():
            files = ", ".join(f"`<stem>{o.suffix}`" for o in backend.variant(key).outputs)
            yield f"| `{key}` | {variant.summary} | {files} |"
    if backend.lint:
        yield from ("", "## What lint looks for", "", "Besides the [common rules](../lint.md):", "")
        yield from (f"- `{rule.name}`: {rule.summary}" for rule in backend.lint)
    yield from ("", "## Limits", "")
    yield from (f"- {_sentence(limit)}" for limit in facts["limits"])
    if backend.mqbench:
        yield from ("", "## Beside MQBench's files", "", "What MQBench writes differs:", "")
        yield from (f"- {_sentence(difference)}" for difference in backend.mqbench)
    yield from (
        "",
        "Results on test networks and in real runtimes: [all backends](../backends.md).",
    )


def _file(output: Output) -> str:
    return f"| `<stem>{output.suffix}` | {output.summary} |"


def _sentence(text: str) -> str:
    first = text.split()[0]
    start = text if not first.isalpha() or first in _AS_WRITTEN else text[0].upper() + text[1:]
    return f"{start}."


def write() -> None:
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, backend in shipped():
        (FOLDER / f"{name}.md").write_text(page(backend, converted(name)), encoding="utf-8")


if __name__ == "__main__":
    write()
