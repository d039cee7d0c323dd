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

from vectorizer.buckets import AUTO_BUCKETS
from vectorizer.certificate import Certificate, OpClass, OpRecord, OutputParity, ParityRecord
from vectorizer.derivatives import Derivative
from vectorizer.derivatives.direct import gradient, hessian, jacobian, vjp
from vectorizer.errors import (
    ConversionError,
    DeclarationError,
    LoopedOpError,
    ParityError,
    ProbeError,
    SideEffectError,
    TraceError,
    VectorizerError,
)
from vectorizer.lengths import Axis, Length
from vectorizer.saved_source import SavedSource, saved_source
from vectorizer.source import SourceLines
from vectorizer.trace import ExampleFunction, trace_example
from vectorizer.vectorize import vectorize
from vectorizer.vectorized import Bucket, Output, Vectorized
from vectorizer.verify import RunBatch, verify_bucket

__all__ = [
    "AUTO_BUCKETS",
    "Axis",
    "Bucket",
    "Certificate",
    "ConversionError",
    "DeclarationError",
    "Derivative",
    "ExampleFunction",
    "Length",
    "LoopedOpError",
    "OpClass",
    "OpRecord",
    "Output",
    "OutputParity",
    "ParityError",
    "ParityRecord",
    "ProbeError",
    "RunBatch",
    "SavedSource",
    "SideEffectError",
    "SourceLines",
    "TraceError",
    "Vectorized",
    "VectorizerError",
    "gradient",
    "hessian",
    "jacobian",
    "saved_source",
    "trace_example",
    "vectorize",
    "verify_bucket",
    "vjp",
]
