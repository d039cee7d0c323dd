"""Per-example function -> batched graphs, with a certificate. Knows nothing of serving.

::

    import tensorflow as tf
    from vectorizer import vectorize

    def predict(x):                     # ONE example: no batch dimension
        if tf.reduce_sum(x) > 0:
            return tf.nn.softmax(x @ W)
        return tf.zeros([10])

    batched = vectorize(predict, inputs={"x": tf.TensorSpec([64])}, buckets=(1, 8, 64))
    batched(x=many_examples)            # any number of rows
    print(batched.certificate.to_json())
"""

from __future__ import annotations

from vectorizer.agreement import AnswerBits
from vectorizer.batch_dimension import check_rows_are_independent, has_batch_dimension
from vectorizer.batch_function import BatchFunction
from vectorizer.buckets import AUTO_BUCKETS
from vectorizer.certificate import (
    Certificate,
    MadeBy,
    OpClass,
    OpRecord,
    OutputParity,
    Padding,
    ParityRecord,
    ProbeCounts,
)
from vectorizer.derivatives import Derivative
from vectorizer.derivatives.direct import gradient, hessian, jacobian, vjp
from vectorizer.errors import (
    BatchDimensionError,
    ConversionError,
    DeclarationError,
    LoopedOpError,
    ParityError,
    ProbeError,
    SideEffectError,
    TraceError,
    VectorizerError,
)
from vectorizer.export import BatchedGraphs, export_saved_model, save_batched_graphs
from vectorizer.lengths import Axis, Length
from vectorizer.map_vectorized import map_vectorized
from vectorizer.metagraph import MetaGraphSignature, has_objects, load_signature
from vectorizer.saved_source import SavedSource, saved_source
from vectorizer.source import SourceLines
from vectorizer.trace import ExampleFunction, trace_example
from vectorizer.vectorize import vectorize
from vectorizer.vectorized import Bucket, Output, Vectorized
from vectorizer.verify import RunBatch, verify_bucket

__all__ = [
    "AUTO_BUCKETS",
    "AnswerBits",
    "Axis",
    "BatchDimensionError",
    "BatchFunction",
    "BatchedGraphs",
    "Bucket",
    "Certificate",
    "ConversionError",
    "DeclarationError",
    "Derivative",
    "ExampleFunction",
    "Length",
    "LoopedOpError",
    "MadeBy",
    "MetaGraphSignature",
    "OpClass",
    "OpRecord",
    "Output",
    "OutputParity",
    "Padding",
    "ParityError",
    "ParityRecord",
    "ProbeCounts",
    "ProbeError",
    "RunBatch",
    "SavedSource",
    "SideEffectError",
    "SourceLines",
    "TraceError",
    "Vectorized",
    "VectorizerError",
    "check_rows_are_independent",
    "export_saved_model",
    "gradient",
    "has_batch_dimension",
    "has_objects",
    "hessian",
    "jacobian",
    "load_signature",
    "map_vectorized",
    "save_batched_graphs",
    "saved_source",
    "trace_example",
    "vectorize",
    "verify_bucket",
    "vjp",
]
