"""A backend as one value: what a target accepts, how a model gets there, which files it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from onnxq.discovery import Broken, discover, find, in_own_file
from onnxq.errors import OptionError, near_matches
from onnxq.operators.placement import INPUTS_ONLY, Placement, add_op_kind
from onnxq.parsing.argument_types import takes
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import Scheme
from onnxq.running.sessions import Kind
from onnxq.side_files.native_format import NativeFile
from onnxq.side_files.side_file import SideFile

if TYPE_CHECKING:
    from onnxq.lint.rule import LintRule

BACKENDS_GROUP = "onnxq.backends"
"""The entry points of packages that provide backends."""


@dataclass(frozen=True)
class OnnxFile:
    """An ONNX file, made from the legal canonical graph by a pipeline."""

    suffix: str
    """Ending after the model's stem, such as '_qdq.onnx'."""
    pipeline: Pipeline
    summary: str
    clean: bool = False
    """Whether it is the float model, with all of its quantization in side files."""

    def __post_init__(self) -> None:
        """Refuse a suffix that is no ending: it would be glued to the name of the model."""
        if not self.suffix.endswith(".onnx"):
            raise OptionError(
                f"OnnxFile: suffix={self.suffix!r} does not end with '.onnx'",
                fix=f"give the ending after the model's name: '_{self.suffix.strip('_') or 'qdq'}"
                ".onnx'",
            )


@dataclass(frozen=True)
class TableFile:
    """A side file, made from the quantization table; `beside` names the model it belongs to."""

    suffix: str
    format: SideFile
    beside: str
    legacy: bool = False
    """Whether it repeats the first side file for older consumers: it is left out, with the model
    next to it, if its format cannot contain the quantization."""

    @property
    def summary(self) -> str:
        """What the file is."""
        return self.format.summary


Output = OnnxFile | TableFile | NativeFile
"""One file that a backend writes."""


@dataclass(frozen=True)
class Variant:
    """Another way to deploy to the same target: what differs from the backend's own way."""

    summary: str
    pipeline: Pipeline | None = None
    outputs: tuple[Output, ...] | None = None
    scheme: Scheme | None = None
    placement: Placement | None = None


@dataclass(frozen=True)
class Backend:
    """Everything onnxq knows about a target.

    A backend without outputs can be trained for, but not converted to: it has no writer yet.
    """

    name: str
    summary: str
    scheme: Scheme
    pipeline: Pipeline = field(default_factory=Pipeline)
    """From any quantized model to a canonical graph that fits the scheme."""
    outputs: tuple[Output, ...] = ()
    """The files, the one to deploy first."""
    proof: Literal["consumer", "format"] | None = None
    """Whether a real consumer was compared, or the files are checked by reading them back; None if
    nothing is written."""
    consumers: tuple[str, ...] = ()
    """Runtimes, with versions, that ran the written files and were compared."""
    sessions: tuple[Kind, ...] = field(default=("reference",))
    """The onnxruntime sessions the first file is compared in: the reference one decides to the
    step, others (real kernels) within their rounding."""
    float16: bool = True
    """Whether its files can contain float16. If not, such a model is computed in float32."""
    placement: Placement = INPUTS_ONLY
    """Which tensors carry quantizers."""
    lint: tuple[LintRule, ...] = ()
    """Lint rules for this target, in addition to the common ones."""
    variants: Mapping[str, Variant] = field(default_factory=dict, hash=False)
    """Other ways to deploy, by the name they are chosen with."""
    mqbench: tuple[str, ...] | None = None
    """Differences to the files that MQBench writes for this target, each in a sentence, for users
    who migrate. None if MQBench has no such target."""

    @property
    def in_single_precision(self) -> bool:
        """Whether a float16 model is quantized in float32.

        onnxruntime's own kernels have no float16, and some files cannot contain it.
        """
        return not self.float16 or "deployed" in self.sessions

    def __post_init__(self) -> None:
        """Reject a backend that could not be run, so that a wrong file fails on import."""
        self._check_fields()
        if bool(self.outputs) != (self.proof is not None):
            raise OptionError(
                f"backend '{self.name}': written files need a level of proof, and only "
                "written files have one",
                fix="add proof='format', or 'consumer' if the real runtime was compared"
                if self.outputs
                else "leave out proof= and sessions=: without outputs, it is for training only",
            )
        for name in self.variants:
            self.variant(name)
        if not self.outputs:
            return
        self._check_biases()
        models = [o.suffix for o in self.outputs if isinstance(o, OnnxFile)]
        suffixes = [o.suffix for o in self.outputs]
        if not models or suffixes[0] != models[0]:
            raise OptionError(
                f"backend '{self.name}': the first output must be an OnnxFile",
                fix="put the model to deploy first",
            )
        if len(set(suffixes)) != len(suffixes):
            raise OptionError(
                f"backend '{self.name}': two outputs have the same suffix",
                fix="give each a suffix of its own: one would be written over the other",
            )
        told = {
            o.beside for o in self.outputs if isinstance(o, TableFile) and not o.format.magnitudes
        }
        for output in self.outputs:
            if isinstance(output, OnnxFile) and output.clean and output.suffix not in told:
                raise OptionError(
                    f"backend '{self.name}': no file contains the quantization of "
                    f"'{output.suffix}'",
                    fix=f"add a TableFile(..., beside='{output.suffix}'), or leave clean= out",
                )
            if isinstance(output, TableFile) and output.legacy and output.beside == models[0]:
                raise OptionError(
                    f"backend '{self.name}': '{output.suffix}' is next to the model to deploy "
                    "and cannot be left out",
                    fix="leave legacy= out",
                )
            if isinstance(output, TableFile) and output.beside not in models:
                raise OptionError(
                    f"backend '{self.name}': '{output.suffix}' belongs to '{output.beside}', "
                    "which is not one of its models",
                    fix=f"set beside= to the suffix of one: {', '.join(map(repr, models))}",
                )

    def _check_fields(self) -> None:
        """Refuse fields of other types, and words that mean nothing."""

        def need(field: str, fits: bool, fix: str) -> None:
            if not fits:
                given = getattr(self, field)
                raise OptionError(f"backend '{self.name}': {field}={given!r}", fix=fix)

        kinds = get_args(Kind)
        need("scheme", isinstance(self.scheme, Scheme), "give a Scheme(weight=..., activation=...)")
        need("pipeline", isinstance(self.pipeline, Pipeline), "give a Pipeline(...)")
        need("placement", isinstance(self.placement, Placement), "leave it out for the default")
        written = _is_tuple(self.outputs, lambda each: isinstance(each, Output))
        need("outputs", written, "give a tuple of OnnxFile and TableFile: (OnnxFile(...),)")
        proofs = (None, "consumer", "format")
        need("proof", self.proof in proofs, "choose 'consumer' or 'format'")
        known = _is_tuple(self.sessions, lambda each: each in kinds)
        need("sessions", known, f"give a tuple of {', '.join(map(repr, kinds))}")
        rules = _is_tuple(self.lint, lambda each: callable(getattr(each, "check", None)))
        need("lint", rules, "give a tuple of rules: (LintRule(name, summary, check),)")

    def _check_biases(self) -> None:
        """Refuse biases that the scheme has as wide codes, and that the files have as floats."""
        bias = self.scheme.bias
        if bias is None or bias.bits <= 16:
            return
        made = {step.name: step for step in self.pipeline}
        written = [step for o in self.outputs if isinstance(o, OnnxFile) for step in o.pipeline]
        floats = any(getattr(s, "bias", "") == "float" for s in written if s.name == "to-qdq")
        if "quantize-bias" not in made or floats:
            lacks = "writes them as floats" if floats else "has no pass that makes their codes"
            raise OptionError(
                f"backend '{self.name}': the scheme has {bias.types[0]} biases, and it {lacks}",
                fix='write ToQdq(bias="int32") in its files'
                if floats
                else "put QuantizeBias() and RoundBias() at the end of its pipeline, or leave "
                "bias= out of the scheme",
            )

    def __repr__(self) -> str:
        return f"<Backend {self.name}: {self.summary}>"

    @property
    def writes(self) -> bool:
        """Whether models can be converted for this target."""
        return bool(self.outputs)

    def variant(self, name: str) -> Backend:
        """The backend as its variant `name` deploys."""
        if name not in self.variants:
            has = near_matches(name, self.variants) if self.variants else "leave the variant out"
            raise OptionError(f"backend '{self.name}' has no variant '{name}'", fix=has)
        chosen = self.variants[name]
        return replace(
            self,
            pipeline=self.pipeline if chosen.pipeline is None else chosen.pipeline,
            outputs=self.outputs if chosen.outputs is None else chosen.outputs,
            scheme=self.scheme if chosen.scheme is None else chosen.scheme,
            placement=self.placement if chosen.placement is None else chosen.placement,
            variants={},
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object for listings."""
        return {
            "name": self.name,
            "summary": self.summary,
            "weight": str(self.scheme.weight),
            "activation": str(self.scheme.activation),
            "bias": "float" if self.scheme.bias is None else str(self.scheme.bias),
            "writes": self.writes,
            "pipeline": str(self.pipeline),
            "outputs": _listed(self.outputs),
            "proof": self.proof,
            "consumers": list(self.consumers),
            "lint": [{"name": rule.name, "summary": rule.summary} for rule in self.lint],
            "variants": {
                name: {
                    "summary": chosen.summary,
                    "pipeline": str(self.variant(name).pipeline),
                    "outputs": _listed(self.variant(name).outputs),
                }
                for name, chosen in self.variants.items()
            },
        }


def _is_tuple(given: object, fits: Callable[[Any], bool]) -> bool:
    return isinstance(given, tuple) and all(map(fits, given))


def _listed(outputs: tuple[Output, ...]) -> list[dict[str, str]]:
    return [{"suffix": o.suffix, "summary": o.summary} for o in outputs]


def backends() -> Mapping[str, Backend | Broken]:
    """All known backends by name."""
    return discover("onnxq.backends", BACKENDS_GROUP, _backends_in, "backend")


def find_backend(name: str) -> Backend:
    """The backend of that name."""
    own = in_own_file(name, "onnxq.backends", BACKENDS_GROUP, _backends_in)
    if own is not None:
        return cast(Backend, own)
    found: Backend = find(name, backends(), "backend", "onnxq backends")
    return found


@takes(variant=(str, None))
def chosen_backend(backend: str | Backend, variant: str | None = None) -> Backend:
    """A backend, by its name or itself, as `variant` deploys it (None: in its own way)."""
    found = find_backend(backend) if isinstance(backend, str) else backend
    return found if variant is None else found.variant(variant)


def _backends_in(thing: Any) -> dict[str, Any]:
    if isinstance(thing, ModuleType):
        thing = getattr(thing, "BACKEND", None)
        return {} if thing is None else {thing.name: thing}
    if not isinstance(thing, Backend):
        raise TypeError(f"{thing!r} is not an onnxq.backend.Backend")
    return {thing.name: thing}


__all__ = [
    *("BACKENDS_GROUP", "Backend", "OnnxFile", "Output", "Placement", "TableFile", "Variant"),
    "add_op_kind",
    *("backends", "chosen_backend", "find_backend"),
]
