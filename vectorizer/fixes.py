"""What to write instead of an op that would run once for each row."""

from __future__ import annotations

__all__ = ["fix_for"]

_BY_SIZE = "its result has another size for each row: return a fixed size and a count beside it, for example {}"
_DECODING = (
    "decode before the request is sent, or allow it: decoding works on one file at a time anyway, and what follows "
    "is vectorized"
)
_RANDOM = "draw with tf.random.stateless_* and a seed that is an input of the function"
_LISTS = "give the TensorArray a fixed size and write it at an index that all rows share (a loop's counter)"

#: By op type. What is said is a rewrite with ops that have a batched form.
_FIXES = {
    "AudioSummaryV2": "remove it: a served graph writes no summaries",
    "Bincount": "tf.math.bincount(..., minlength=n, maxlength=n) with a constant n",
    "BoostedTreesPredict": "write the trees as arrays and walk them with tf.gather in a loop of fixed depth",
    "Conv2DBackpropFilter": "take the gradient through tf.linalg.matmul on tf.image.extract_patches(...)",
    "Conv3DBackpropFilterV2": "take the gradient through tf.linalg.matmul on extracted patches",
    "CTCGreedyDecoder": "tf.argmax over the classes, then mask repeats by comparing with the shifted result",
    "CTCBeamSearchDecoderV2": "tf.argmax over the classes (greedy), or decode on the caller's side",
    "DecodeAndCropJpeg": _DECODING,
    "DecodeBmp": _DECODING,
    "DecodeCSV": "send the columns as inputs of their own, each with its type",
    "DecodeGif": _DECODING,
    "DecodeImage": _DECODING,
    "DecodeJpeg": _DECODING,
    "DecodePng": _DECODING,
    "DecodeWav": _DECODING,
    "EditDistance": "a dynamic program over tf.range(length) with dense strings of codes",
    "HistogramFixedWidth": "tf.math.bincount of tf.cast((x - low) / (high - low) * n, tf.int32), with constant n",
    "ListDiff": "a mask: tf.reduce_all(x[:, None] != y[None, :], axis=1)",
    "MatrixLogarithm": "tf.linalg.eigh for symmetric matrices, and the logarithm of the eigenvalues",
    "MatrixSquareRoot": "tf.linalg.eigh for symmetric matrices, and the square root of the eigenvalues",
    "NearestNeighbors": "squared distances by tf.matmul, then tf.math.top_k of their negative",
    "NonMaxSuppressionV5": "tf.image.non_max_suppression without soft suppression, or allow it",
    "NonMaxSuppressionWithOverlaps": "tf.image.non_max_suppression_padded on boxes",
    "ParseExampleV2": "send the features as inputs of their own",
    "ParseSingleExample": "send the features as inputs of their own",
    "RandomShuffle": _RANDOM,
    "RandomStandardNormal": _RANDOM,
    "RandomUniform": _RANDOM,
    "RandomUniformInt": _RANDOM,
    "Roll": "tf.gather with indices (tf.range(n) - shift) % n",
    "Skipgram": "prepare the pairs on the caller's side",
    "SparseReorder": "dense tensors with a mask: tf.sparse.to_dense before the model",
    "SparseReshape": "dense tensors with a mask: tf.sparse.to_dense before the model",
    "SparseTensorDenseMatMul": "a dense matrix, or tf.gather of the rows that count and a sum",
    "SparseToDense": "tf.scatter_nd or tf.tensor_scatter_nd_update on a dense tensor",
    "StringSplitV2": _BY_SIZE.format("tf.strings.split(x)[:n].to_tensor with a mask"),
    "TensorListConcatV2": _LISTS,
    "TensorListPopBack": _LISTS,
    "TensorListPushBack": _LISTS,
    "TensorListResize": _LISTS,
    "TensorListSplit": _LISTS,
    "UnicodeDecodeWithOffsets": "tf.strings.bytes_split, or decode on the caller's side",
    "Unique": _BY_SIZE.format("tf.sort and a mask of the elements that differ from the one before"),
    "UniqueV2": _BY_SIZE.format("tf.sort and a mask of the elements that differ from the one before"),
    "UniqueWithCounts": _BY_SIZE.format("tf.math.bincount with constant minlength and maxlength"),
    "Where": _BY_SIZE.format("tf.where(mask, x, 0) and tf.reduce_sum(tf.cast(mask, tf.int32))"),
}
_STRINGS = "clean the text on the caller's side, or allow it: string ops are cheap beside a network"
_SPARSE = "dense tensors with a mask: tf.sparse.to_dense before the model"
_QUANTIZED = "the floating-point op of the same name: quantized kernels take one example at a time"
_BY_PREFIX = (
    ("Decode", _DECODING),
    ("Quantize", _QUANTIZED),
    ("Ragged", "dense tensors padded to a declared length (lengths={...}) and the true length as an input"),
    ("Random", _RANDOM),
    ("Sparse", _SPARSE),
    ("String", _STRINGS),
    ("TensorList", _LISTS),
    ("Unicode", _STRINGS),
)


def fix_for(op_type: str) -> str:
    """Return what to write instead of an op of this type, or how to live with it."""
    if op_type in _FIXES:
        return _FIXES[op_type]
    for prefix, fix in _BY_PREFIX:
        if op_type.startswith(prefix):
            return fix
    return (
        "write it with elementwise ops, matrix products, tf.gather and reductions, which all have a batched form; or "
        "allow it, if it is cheap beside the rest: it then runs once for each row"
    )
