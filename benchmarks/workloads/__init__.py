"""Forward models to measure: each for one example, and the same batched by hand, side by side.

What is batched by hand is what an engineer would write who knows TensorFlow well: time first in loops, dense layers as
one matrix product, finished rows masked only where their answers would change.
"""

from __future__ import annotations

from benchmarks.workloads.convnet import CONVNET
from benchmarks.workloads.embedding_bag import EMBEDDING_BAG
from benchmarks.workloads.encoder import ENCODER
from benchmarks.workloads.greedy_decoder import GREEDY_DECODER
from benchmarks.workloads.jpeg_pipeline import JPEG_PIPELINE
from benchmarks.workloads.lstm import LSTM
from benchmarks.workloads.mlp import MLP
from benchmarks.workloads.mobilenet import MOBILENET
from benchmarks.workloads.recommender import RECOMMENDER
from benchmarks.workloads.solver import SOLVER
from benchmarks.workloads.tree_lstm import TREE_LSTM
from benchmarks.workloads.workload import Workload

__all__ = ["WORKLOADS", "Workload"]

_ALL = (
    MLP,
    CONVNET,
    MOBILENET,
    LSTM,
    TREE_LSTM,
    ENCODER,
    GREEDY_DECODER,
    SOLVER,
    EMBEDDING_BAG,
    RECOMMENDER,
    JPEG_PIPELINE,
)

#: By name, in the order of the report.
WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _ALL}
