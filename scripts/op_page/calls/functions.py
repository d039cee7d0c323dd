"""Ops that call functions, hold lists, read variables and tables, draw numbers, or have effects."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.op_page.call import Call, Each, call, ints, reals

__all__ = ["CALLS", "VARIANTS"]

_RAW = tf.raw_ops
_KEYS = ints(2)
_KEY, _COUNTER = Each(np.array([1], np.uint64)), Each(np.array([1, 2], np.uint64))
_SHAPE = np.int32([2])
_ALG = 1
_CANDIDATES = {"num_true": 1, "num_sampled": 2, "unique": True}
_TRUE = ints(2, 1, dtype=np.int64)


def _same(names: str, make: Callable[[str], Call]) -> dict[str, Callable[[str], Call]]:
    return dict.fromkeys(names.split(), make)


def _calling(op: str) -> Call:
    """Return a call of an op that calls functions."""
    made: dict[str, Callable[[tf.Tensor], Any]] = {
        "If": lambda x: _RAW.If(
            cond=x > 0.5,
            input=[x],
            Tout=[tf.float32],
            then_branch=_double.get_concrete_function(),
            else_branch=_same_one.get_concrete_function(),
        ),
        "StatelessIf": lambda x: _RAW.StatelessIf(
            cond=x > 0.5,
            input=[x],
            Tout=[tf.float32],
            then_branch=_double.get_concrete_function(),
            else_branch=_same_one.get_concrete_function(),
        ),
        "Case": lambda x: _RAW.Case(
            branch_index=tf.cast(x * 3, tf.int32),
            input=[x],
            Tout=[tf.float32],
            branches=[_double.get_concrete_function(), _same_one.get_concrete_function()],
        ),
        "StatelessCase": lambda x: _RAW.StatelessCase(
            branch_index=tf.cast(x * 3, tf.int32),
            input=[x],
            Tout=[tf.float32],
            branches=[_double.get_concrete_function(), _same_one.get_concrete_function()],
        ),
        "While": lambda x: _RAW.While(
            input=[x], cond=_is_small.get_concrete_function(), body=_double.get_concrete_function()
        ),
        "StatelessWhile": lambda x: _RAW.StatelessWhile(
            input=[x], cond=_is_small.get_concrete_function(), body=_double.get_concrete_function()
        ),
        "PartitionedCall": lambda x: _RAW.PartitionedCall(
            args=[x], Tout=[tf.float32], f=_double.get_concrete_function()
        ),
        "StatefulPartitionedCall": lambda x: _RAW.StatefulPartitionedCall(
            args=[x], Tout=[tf.float32], f=_double.get_concrete_function()
        ),
    }
    return call(reals(), build=made[op])(op)


_double = tf.function(lambda x: x * 2.0, input_signature=[tf.TensorSpec([])])
_same_one = tf.function(lambda x: x + 0.0, input_signature=[tf.TensorSpec([])])
_is_small = tf.function(lambda x: x < 5.0, input_signature=[tf.TensorSpec([])])


def _list(of: Callable[[tf.Tensor], Any]) -> Callable[[str], Call]:
    """A call on a list of each example's three vectors."""

    def build(x: tf.Tensor) -> Any:
        made = of(_RAW.TensorListFromTensor(tensor=x, element_shape=tf.constant([2])))
        if isinstance(made, tf.Tensor) and made.dtype == tf.variant:
            return _RAW.TensorListStack(input_handle=made, element_shape=tf.constant([2]), element_dtype=tf.float32)
        return made

    return call(reals(3, 2), build=build)


def _item(of: Callable[[tf.Tensor, tf.Tensor], Any]) -> Callable[[str], Call]:
    """A call on such a list and an index or item of each example's own."""

    def build(x: tf.Tensor, index: tf.Tensor) -> Any:
        made = of(_RAW.TensorListFromTensor(tensor=x, element_shape=tf.constant([2])), index)
        if isinstance(made, tf.Tensor) and made.dtype == tf.variant:
            return _RAW.TensorListStack(input_handle=made, element_shape=tf.constant([2]), element_dtype=tf.float32)
        return made

    return call(reals(3, 2), Each(np.array(1, np.int32)), build=build)


_ELEMENT: dict[str, Any] = {"element_shape": [2], "element_dtype": tf.float32}


@cache
def _variable() -> tf.Tensor:
    """Return a variable, which is made once, outside of all graphs."""
    with tf.init_scope():
        return tf.Variable(np.float32([[1, 2], [3, 4], [5, 6], [7, 8]]))


@cache
def _table() -> tf.lookup.StaticHashTable:
    with tf.init_scope():
        keys, values = tf.constant([1, 2], tf.int64), tf.constant([0.1, 0.2])
        return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0.0)


def _map(of: Callable[[tf.Tensor, tf.Tensor], Any]) -> Callable[[str], Call]:
    def build(x: tf.Tensor) -> Any:
        given = _RAW.TensorMapInsert(input_handle=_RAW.EmptyTensorMap(), key=tf.constant(1), value=x)
        made = of(given, x)
        return _RAW.TensorMapSize(input_handle=made) if made.dtype == tf.variant else made

    return call(reals(2), build=build)


def _effect(of: Callable[[tf.Tensor], Any]) -> Callable[[str], Call]:
    def build(x: tf.Tensor) -> Any:
        of(x)
        return x + 0.0

    return call(reals(2), build=build)


CALLS: dict[str, Callable[[str], Call]] = {
    **_same("Case If PartitionedCall StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile While", _calling),
    **_same("StatelessRandomNormal StatelessRandomUniform StatelessTruncatedNormal", call(_SHAPE, _KEYS)),
    **_same("StatelessRandomUniformFullInt", call(_SHAPE, _KEYS, dtype=tf.int32)),
    **_same("StatelessRandomUniformInt", call(_SHAPE, _KEYS, 0, 9)),
    **_same(
        "StatelessRandomNormalV2 StatelessRandomUniformV2 StatelessTruncatedNormalV2",
        call(_SHAPE, _KEY, _COUNTER, _ALG),
    ),
    **_same("StatelessRandomUniformFullIntV2", call(_SHAPE, _KEY, _COUNTER, _ALG, dtype=tf.int32)),
    **_same("StatelessRandomUniformIntV2", call(_SHAPE, _KEY, _COUNTER, _ALG, 0, 9)),
    **_same("StatelessRandomGammaV2", call(_SHAPE, _KEYS, reals(2))),
    **_same("StatelessRandomGammaV3", call(_SHAPE, _KEY, _COUNTER, _ALG, reals(2))),
    **_same("StatelessRandomPoisson", call(_SHAPE, _KEYS, reals(2), dtype=tf.float32)),
    **_same("StatelessRandomBinomial", call(_SHAPE, _KEYS, reals(2), reals(2))),
    **_same("StatelessParameterizedTruncatedNormal", call(_SHAPE, _KEYS, reals(), reals(), reals(), reals(low=2))),
    **_same("StatelessMultinomial", call(reals(2, 3), 2, _KEYS)),
    **_same("StatelessShuffle", call(reals(3, 2), _KEY, _COUNTER, _ALG)),
    **_same("StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg", call(_KEYS)),
    **_same("Multinomial", call(reals(2, 3), 2)),
    **_same("ParameterizedTruncatedNormal", call(_SHAPE, reals(2), reals(2), reals(2), reals(2))),
    **_same("RandomGamma", call(_SHAPE, reals(2))),
    **_same("RandomPoissonV2", call(_SHAPE, reals(2))),
    **_same("RandomStandardNormal RandomUniform TruncatedNormal", call(_SHAPE, dtype=tf.float32)),
    **_same("RandomUniformInt", call(_SHAPE, ints(), 9)),
    **_same("AllCandidateSampler", call(_TRUE, **_CANDIDATES)),
    **_same("FixedUnigramCandidateSampler", call(_TRUE, range_max=4, unigrams=[1.0, 2.0, 3.0, 4.0], **_CANDIDATES)),
    **_same(
        "LearnedUnigramCandidateSampler LogUniformCandidateSampler ThreadUnsafeUnigramCandidateSampler "
        "UniformCandidateSampler",
        call(_TRUE, range_max=9, **_CANDIDATES),
    ),
    **_same("PyFunc", call(reals(2), build=lambda x: _RAW.PyFunc(input=[x], token="t", Tout=[tf.float32]))),
    **_same("EagerPyFunc", call(reals(2), build=lambda x: _RAW.EagerPyFunc(input=[x], token="t", Tout=[tf.float32]))),
    **_same(
        "PyFuncStateless", call(reals(2), build=lambda x: _RAW.PyFuncStateless(input=[x], token="t", Tout=[tf.float32]))
    ),
    "ApproxTopK": call(reals(2, 8), k=2),
    "Assert": _effect(lambda x: _RAW.Assert(condition=x[0] > 0, data=[x])),
    "CheckNumerics": call(reals(2), message="here"),
    "CompositeTensorVariantFromComponents": call(
        reals(2), build=lambda x: _RAW.CompositeTensorVariantFromComponents(components=[x], metadata="")
    ),
    "CompositeTensorVariantToComponents": call(
        reals(2),
        build=lambda x: _RAW.CompositeTensorVariantToComponents(
            encoded=_RAW.CompositeTensorVariantFromComponents(components=[x], metadata=""),
            metadata="",
            Tcomponents=[tf.float32],
        ),
    ),
    "Print": _effect(lambda x: _RAW.Print(input=x, data=[x])),
    "PrintV2": _effect(lambda x: _RAW.PrintV2(input=tf.strings.format("{}", x))),
    "LookupTableFindV2": call(
        ints(3, dtype=np.int64),
        build=lambda k: _RAW.LookupTableFindV2(
            table_handle=_table().resource_handle, keys=k, default_value=tf.constant(0.0)
        ),
    ),
    "LookupTableSizeV2": call(
        ints(dtype=np.int64), build=lambda k: k + _RAW.LookupTableSizeV2(table_handle=_table().resource_handle)
    ),
    "ReadVariableOp": call(
        reals(2), build=lambda x: x + _RAW.ReadVariableOp(resource=_variable().handle, dtype=tf.float32)
    ),
    "ResourceGather": call(
        ints(3, below=4), build=lambda i: _RAW.ResourceGather(resource=_variable().handle, indices=i, dtype=tf.float32)
    ),
    "ResourceGatherNd": call(
        ints(3, 1, below=4),
        build=lambda i: _RAW.ResourceGatherNd(resource=_variable().handle, indices=i, dtype=tf.float32),
    ),
    "VariableShape": call(ints(2), build=lambda x: x + _RAW.VariableShape(input=_variable().handle)),
    "EmptyTensorList": call(
        reals(2),
        build=lambda x: _RAW.TensorListStack(
            input_handle=_RAW.TensorListPushBack(
                input_handle=_RAW.EmptyTensorList(
                    element_shape=tf.constant([2]), max_num_elements=3, element_dtype=tf.float32
                ),
                tensor=x,
            ),
            **_ELEMENT,
        ),
    ),
    "TensorListReserve": call(
        reals(2),
        build=lambda x: _RAW.TensorListStack(
            input_handle=_RAW.TensorListSetItem(
                input_handle=_RAW.TensorListReserve(
                    element_shape=tf.constant([2]), num_elements=3, element_dtype=tf.float32
                ),
                index=1,
                item=x,
            ),
            **_ELEMENT,
        ),
    ),
    "TensorListConcat": _list(lambda v: _RAW.TensorListConcat(input_handle=v, element_dtype=tf.float32)),
    "TensorListConcatLists": _list(
        lambda v: _RAW.TensorListConcatLists(input_a=v, input_b=v, element_dtype=tf.float32)
    ),
    "TensorListConcatV2": _list(
        lambda v: _RAW.TensorListConcatV2(input_handle=v, leading_dims=tf.constant([], tf.int64), **_ELEMENT)
    ),
    "TensorListElementShape": _list(
        lambda v: (
            _RAW.TensorListElementShape(input_handle=v, shape_type=tf.int32) + _RAW.TensorListLength(input_handle=v)
        )
    ),
    "TensorListFromTensor": _list(lambda v: v),
    "TensorListGather": _item(lambda v, i: _RAW.TensorListGather(input_handle=v, indices=[i], **_ELEMENT)),
    "TensorListGetItem": _item(lambda v, i: _RAW.TensorListGetItem(input_handle=v, index=i, **_ELEMENT)),
    "TensorListLength": _list(lambda v: _RAW.TensorListLength(input_handle=v)),
    "TensorListPopBack": _list(lambda v: _RAW.TensorListPopBack(input_handle=v, **_ELEMENT).tensor),
    "TensorListPushBack": _list(lambda v: _RAW.TensorListPushBack(input_handle=v, tensor=tf.ones([2]))),
    "TensorListPushBackBatch": _list(
        lambda v: _RAW.TensorListPushBackBatch(input_handles=tf.stack([v]), tensor=tf.ones([1, 2]))[0]
    ),
    "TensorListResize": _item(lambda v, i: _RAW.TensorListResize(input_handle=v, size=i)),
    "TensorListScatter": _list(
        lambda v: _RAW.TensorListScatter(
            tensor=_RAW.TensorListStack(input_handle=v, **_ELEMENT), indices=[2, 0, 1], element_shape=tf.constant([2])
        )
    ),
    "TensorListScatterIntoExistingList": _item(
        lambda v, i: _RAW.TensorListScatterIntoExistingList(input_handle=v, tensor=tf.ones([1, 2]), indices=[i])
    ),
    "TensorListScatterV2": _list(
        lambda v: _RAW.TensorListScatterV2(
            tensor=_RAW.TensorListStack(input_handle=v, **_ELEMENT),
            indices=[2, 0, 1],
            element_shape=tf.constant([2]),
            num_elements=4,
        )
    ),
    "TensorListSetItem": _item(lambda v, i: _RAW.TensorListSetItem(input_handle=v, index=i, item=tf.ones([2]))),
    "TensorListSplit": call(
        reals(3, 2),
        build=lambda x: _RAW.TensorListStack(
            input_handle=_RAW.TensorListSplit(
                tensor=x, element_shape=tf.constant([-1, 2]), lengths=tf.constant([1, 1, 1], tf.int64)
            ),
            element_shape=tf.constant([1, 2]),
            element_dtype=tf.float32,
        ),
    ),
    "TensorListStack": _list(lambda v: _RAW.TensorListStack(input_handle=v, **_ELEMENT)),
    "EmptyTensorMap": _map(lambda m, _: m),
    "TensorMapErase": _map(
        lambda m, _: _RAW.TensorMapErase(input_handle=m, key=tf.constant(1), value_dtype=tf.float32)
    ),
    "TensorMapHasKey": _map(lambda m, _: _RAW.TensorMapHasKey(input_handle=m, key=tf.constant(1))),
    "TensorMapInsert": _map(lambda m, x: _RAW.TensorMapInsert(input_handle=m, key=tf.constant(2), value=x)),
    "TensorMapLookup": _map(
        lambda m, _: _RAW.TensorMapLookup(input_handle=m, key=tf.constant(1), value_dtype=tf.float32)
    ),
    "TensorMapSize": _map(lambda m, _: _RAW.TensorMapSize(input_handle=m)),
    "TensorMapStackKeys": _map(lambda m, _: _RAW.TensorMapStackKeys(input_handle=m, key_dtype=tf.int32)),
}

VARIANTS: dict[str, dict[str, Callable[[str], Call]]] = {}
