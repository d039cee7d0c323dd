"""From a registration's specification to what the vectorizer takes: typed inputs, lengths, buckets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tensorflow as tf
from pydantic import ValidationError

from server.annotations import annotated_inputs
from server.build.errors import SourceRefused
from server.build.examples import typed_examples
from server.spec import InputSpec, ModelSpec
from vectorizer import (
    AUTO_BUCKETS,
    BatchFunction,
    Derivative,
    Length,
    SavedSource,
    Vectorized,
    VectorizerError,
    has_batch_dimension,
    has_objects,
    load_signature,
    saved_source,
    vectorize,
)

__all__ = [
    "Declaration",
    "declaration_of_function",
    "declaration_of_saved_model",
    "declaration_of_signature",
]

#: What TensorFlow raises for objects of classes that it no longer has as they were; damaged files raise others.
_UNRESTORABLE = (AttributeError, KeyError, NotImplementedError, TypeError, ValueError)
#: How many of a module's own examples are used as probes.
_MAX_EXAMPLES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What to vectorize, and how."""

    function: Any
    inputs: Mapping[str, tf.TensorSpec]
    lengths: Mapping[str, Length]
    spec: ModelSpec
    examples: Sequence[Mapping[str, Any]] = ()
    #: What holds the function's variables and tables alive.
    owner: Any = None
    #: What a SavedModel knows of the function that it was made of.
    source: SavedSource | None = None

    @property
    def buckets(self) -> tuple[int, ...]:
        """Batch sizes to compile: the spec's own, else powers of two up to its ``max_batch``."""
        if self.spec.buckets != "auto":
            return tuple(self.spec.buckets)
        most = self.spec.max_batch
        powers = [size for size in AUTO_BUCKETS if size < most]
        while powers[-1:] == [AUTO_BUCKETS[-1]] and powers[-1] * 2 < most:
            powers.append(powers[-1] * 2)
        return (*powers, most)

    def vectorized(
        self, *, partitioned: bool = False, progress: Callable[[str, int, int], None] | None = None
    ) -> Vectorized:
        """Vectorize and check as it is declared; options as of ``vectorize``. Errors: VectorizerError."""
        return vectorize(
            self.function,
            inputs=self.inputs,
            buckets=self.buckets,
            lengths=self.lengths,
            allow_looped=self.spec.allow_looped,
            tolerance=self.spec.tolerance,
            random=self.spec.random,
            outputs=self.spec.outputs,
            examples=self.examples,
            derivatives=[Derivative(**derivative.model_dump()) for derivative in self.spec.derivatives],
            partitioned=partitioned,
            progress=progress,
            name=None if self.source is None else self.source.name,
            lines=None if self.source is None else self.source.lines,
        )


def declaration_of_function(function: Any, module: Any, spec: ModelSpec) -> Declaration:
    """Declare an imported function: its inputs come from the spec, else from the function or its module.

    A function marked by ``rowwise.example_model`` carries its inputs, as one whose parameters are annotated with
    tf.TensorSpec does; else a module says ``INPUTS`` (tf.TensorSpec by name). It may say ``SPEC`` (options of a
    registration) and ``examples()``. The request's spec goes first.
    Errors: SourceRefused if no inputs are declared or the module's options are no valid spec.
    """
    own_inputs = (
        getattr(function, "__rowwise_inputs__", None) or annotated_inputs(function) or getattr(module, "INPUTS", None)
    )
    own_spec = getattr(function, "__rowwise_spec__", None) or getattr(module, "SPEC", None) or {}
    merged = _merged(spec, own_inputs, own_spec)
    if merged.inputs is None:
        raise SourceRefused(
            "the function's inputs are not declared: annotate each parameter (x: tf.TensorSpec([64], tf.float32)), or "
            "say INPUTS = {'x': tf.TensorSpec(...)} beside the function, or 'inputs' in the spec"
        )
    return _declaration(function, merged, owner=None, examples=_own_examples(module))


def _own_examples(module: Any) -> list[Mapping[str, Any]]:
    make_examples = getattr(module, "examples", None)
    if not callable(make_examples):
        return []
    try:
        return list(itertools.islice(make_examples(), _MAX_EXAMPLES))
    except Exception as error:
        raise SourceRefused(f"the module's examples() failed: {type(error).__name__}: {error}") from error


def declaration_of_saved_model(saved_model: Path, spec: ModelSpec) -> Declaration:
    """Load the SavedModel in a directory and declare its signature, with the user's own names and lines.

    What TensorFlow can't restore as objects (older Keras, TensorFlow 1) is loaded by its MetaGraph.
    Errors: SourceRefused if it can't be loaded, and those of ``declaration_of_signature``.
    """
    refusal = "it holds no objects"
    try:
        if has_objects(saved_model):
            loaded = tf.saved_model.load(str(saved_model))
            function, declaration = _of_loaded(loaded, spec)
            return replace(declaration, source=saved_source(saved_model, spec.signature, function))
    except SourceRefused:
        raise
    except _UNRESTORABLE as error:
        refusal = f"{type(error).__name__}: {error}"
    except Exception as error:
        raise SourceRefused(f"the SavedModel can't be loaded: {type(error).__name__}: {error}") from error
    try:
        signature = load_signature(saved_model, spec.signature)
    except VectorizerError as error:
        raise SourceRefused(str(error)) from error
    except Exception as error:
        raise SourceRefused(
            f"the SavedModel can't be loaded, neither its objects ({refusal}) nor its graph "
            f"({type(error).__name__}: {error})"
        ) from error
    declaration = _of_signature(signature, signature.inputs, signature.outputs, spec, owner=signature.owner)
    return replace(declaration, source=SavedSource(name=signature.name, lines=signature.lines))


def declaration_of_signature(loaded: Any, spec: ModelSpec) -> Declaration:
    """Declare a signature of a loaded SavedModel: its own typed inputs, with what the spec says of them.

    A signature of batches is recognized, and its batch dimension removed.
    Errors: SourceRefused if the signature is not there, or spec and signature contradict each other.
    """
    return _of_loaded(loaded, spec)[1]


def _of_loaded(loaded: Any, spec: ModelSpec) -> tuple[Any, Declaration]:
    """Return a signature as it was restored, and its declaration."""
    signatures = getattr(loaded, "signatures", {})
    if spec.signature not in signatures:
        raise SourceRefused(
            f"the SavedModel has no signature {spec.signature!r}; it has {', '.join(sorted(signatures)) or 'none'}"
        )
    signature = signatures[spec.signature]
    _, typed = signature.structured_input_signature
    return signature, _of_signature(signature, typed, signature.structured_outputs, spec, owner=loaded)


def _of_signature(
    signature: Any,
    typed: Mapping[str, tf.TensorSpec],
    outputs: Mapping[str, tf.TensorSpec],
    spec: ModelSpec,
    *,
    owner: Any,
) -> Declaration:
    if spec.inputs is not None and spec.inputs.keys() != typed.keys():
        raise SourceRefused(f"the spec declares the inputs {sorted(spec.inputs)}, the signature takes {sorted(typed)}")
    for name, value in (spec.inputs or {}).items():
        if value.dtype != typed[name].dtype.name:
            raise SourceRefused(
                f"input {name!r}: the spec says {value.dtype}{list(value.shape)}, "
                f"the signature takes {typed[name].dtype.name}{typed[name].shape}"
            )
    examples = None if spec.inputs is None else {name: value.shape for name, value in spec.inputs.items()}
    try:
        is_batched = has_batch_dimension(typed, outputs, examples=examples, asked=spec.batch_dimension)
    except VectorizerError as error:
        raise SourceRefused(str(error)) from error
    # In the file, inputs and outputs are maps, which come in any order.
    typed = {name: typed[name] for name in sorted(typed)}
    if spec.outputs is None:
        spec = spec.model_copy(update={"outputs": tuple(sorted(outputs))})
    one = {name: tf.TensorSpec(each.shape[1:], each.dtype) for name, each in typed.items()} if is_batched else typed
    declared = spec if spec.inputs is not None else _merged(spec, one, {})
    of_one = all(each.shape.rank and each.shape[0] == 1 for each in typed.values())
    function = (
        BatchFunction(signature, name=spec.signature, batch_size=1 if of_one else None) if is_batched else signature
    )
    return _declaration(function, declared, owner=owner, examples=())


def _merged(spec: ModelSpec, own_inputs: Mapping[str, Any] | None, own_spec: Mapping[str, Any]) -> ModelSpec:
    """Put the request's options over the function's own."""
    for what, own in (("inputs", own_inputs or {}), ("options", own_spec)):
        if not isinstance(own, Mapping):
            raise SourceRefused(f"the function's own {what}: expected a dict, got {own!r}")
    inputs: dict[str, dict[str, Any]] = {name: _as_dict(name, value) for name, value in (own_inputs or {}).items()}
    for name, options in own_spec.get("inputs", {}).items():
        inputs.setdefault(name, {}).update(options)
    for name, value in (spec.inputs or {}).items():
        inputs[name] = value.model_dump(exclude_unset=True)
    asked = spec.model_dump(exclude_unset=True, exclude={"inputs"})
    try:
        return ModelSpec.model_validate(
            {**{key: value for key, value in own_spec.items() if key != "inputs"}, **asked, "inputs": inputs or None}
        )
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise SourceRefused(f"the declaration of the model: {where}: {problem['msg']}") from error


def _as_dict(name: Any, value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, InputSpec):
        return value.model_dump(exclude_unset=True)
    if isinstance(value, tf.TensorSpec) and value.shape.rank is not None:
        return {"dtype": value.dtype.name, "shape": value.shape.as_list()}
    raise SourceRefused(
        f"input {name!r}: expected a tf.TensorSpec with a known number of dimensions, or a dict of dtype and shape; "
        f"got {value!r}"
    )


def _declaration(function: Any, spec: ModelSpec, *, owner: Any, examples: Sequence[Mapping[str, Any]]) -> Declaration:
    assert spec.inputs is not None
    inputs: dict[str, tf.TensorSpec] = {}
    lengths = {}
    for name, value in spec.inputs.items():
        inputs[name] = tf.TensorSpec(value.shape, tf.as_dtype(value.dtype))
        if value.max is not None:
            lengths[name] = Length(max=value.max, buckets=value.lengths, length_input=value.length_input)
    return Declaration(
        function=function,
        inputs=inputs,
        lengths=lengths,
        spec=spec,
        examples=(*typed_examples(spec.examples, inputs), *examples),
        owner=owner,
    )
