"""How large a graph may be that is loaded here."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GraphLimits"]

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLimits:
    """What a SavedModel may hold. Messages name the field that was passed, and its value."""

    #: Bytes of saved_model.pb. Weights are elsewhere; what JAX exports can hold them as constants.
    max_graph_bytes: int = 1024 * _MIB
    #: Nodes of the main graph and of all functions. MobileNet's artifact of 7 buckets has about 30,000.
    max_nodes: int = 2_000_000
    #: Functions in the library.
    max_functions: int = 100_000
    #: Nodes once every call is written out, each call anew: what TensorFlow's inliner makes of it.
    max_inlined_nodes: int = 20_000_000
    #: Functions that call one another in a chain. A pool of threads waits for as many: see engine/nesting.py.
    max_call_depth: int = 64
    #: Bytes of one constant, and of all of them together, as TensorFlow unfolds them.
    max_constant_bytes: int = 1024 * _MIB
    max_constants_bytes: int = 2048 * _MIB
    #: Of those, bytes that no file holds: a constant may say one value for a shape of billions.
    max_filled_bytes: int = 256 * _MIB
    #: Bytes of one string attribute (patterns, equations); compiled XLA modules are constants.
    max_string_bytes: int = 1 * _MIB
    #: Bytes of one variable, and of all of them. An archive may unpack to as many.
    max_variable_bytes: int = 8192 * _MIB
    max_variables_bytes: int = 8192 * _MIB
    #: Bytes of the list of variables, and its entries.
    max_index_bytes: int = 64 * _MIB
    max_variables: int = 200_000
    #: Files beside the graph.
    max_files: int = 20_000
