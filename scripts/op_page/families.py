"""What the page of ops leaves out: families of ops that no function of one example holds, and why.

The first family that takes an op has it. An op that none takes must be classified by a probe call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["FAMILIES", "Family", "family_of"]


@dataclass(frozen=True)
class Family:
    """Ops that are left out: those whose whole name one of the patterns matches."""

    name: str
    why: str
    patterns: tuple[str, ...]

    def takes(self, op: str) -> bool:
        """Return True if the op belongs to this family."""
        return any(re.fullmatch(pattern, op) for pattern in self.patterns)


FAMILIES = (
    Family(
        "Datasets and iterators",
        "input pipelines run outside of a model; `rowwise` reads requests instead",
        (
            r"\w*Dataset(V\d)?",
            r"\w*Iterator\w*",
            r"(Anonymous|Delete|Dummy)\w*(SeedGenerator|MemoryCache)",
            r"Dataset\w+|DummyIterationCounter|GlobalIterId",
            r"Optional\w+|\w+Options|SnapshotDatasetReader|SnapshotNestedDatasetReader",
            r"(Compress|Uncompress)Element|ComputeBatchSize|(Un)?[Ww]rapDatasetVariant|WindowOp",
            r"(Experimental)?(ThreadPoolHandle|StatsAggregator\w+)|ExperimentalIteratorGetDevice|DisableCopyOnRead",
            r"ExperimentalDataset\w+|GetElementAtIndex|CheckPinned|OneShotIterator",
        ),
    ),
    Family(
        "TPU, sparse cores and feeds",
        "only a TPU runs them",
        (
            r"\w*(TPU|Tpu)\w*",
            r"(Infeed|Outfeed|Prelinearize)\w*",
            r"XlaSparse\w+|\w*(SparseCore|MinibatchSplits|Minibatches|MinibatchStatistics)\w*",
            r"ConvertToCooTensor|XlaConcatND|XlaSplitND|(Assign|Read)VariableXla\w+",
        ),
    ),
    Family(
        "Exchange between devices and machines",
        "a request is answered by one device of one machine",
        (
            r"Collective\w+|Nccl\w+|(_?Send|_?Recv|Host(Send|Recv))|AllToAll|CrossReplicaSum|WorkerHeartbeat",
            r"RemoteCall|DeviceIndex|SyncDevice|RpcCall|ConfigureDistributed\w+|CopyHost|Copy|DeepCopy",
        ),
    ),
    Family(
        "Queues, stages, barriers, readers",
        "they hand values from one run of a graph to another",
        (
            r"\w*Queue(V2|\w*Many\w*|\w*UpTo\w*|Size\w*|Close\w*|IsClosed\w*|Enqueue\w*|Dequeue\w*)?",
            r"Queue\w+|Barrier\w*|(Ordered)?Map(Clear|IncompleteSize|Peek|Size|Stage|Unstage|UnstageNoKey)",
            r"Stage\w*|Unstage|(Fixed\w+|Identity|LMDB|TextLine|TFRecord|WholeFile)?Reader\w*",
            r"RecordInput|\w*Accumulator\w*|Batch|Unbatch|UnbatchGrad|BatchFunction|(Consume)?Mutex\w*",
            r"(Get|Delete)Session\w+|Stack(Close|Pop|Push)?(V2)?|(Add|Take)\w*Sparse\w*TensorsMap",
        ),
    ),
    Family(
        "Boosted trees",
        "they train and run ensembles of the estimators that TensorFlow no longer has",
        (r"(Is)?BoostedTrees\w+",),
    ),
    Family(
        "Debugging",
        "debuggers put them into graphs",
        (r"Debug\w+|CheckNumericsV2|Abort|Fact",),
    ),
    Family(
        "Files, checkpoints, summaries, clocks",
        "a model that answers requests writes nothing and reads nothing but its inputs and weights",
        (
            r"(Save|Restore|MergeSummary|MergeV2|Sharded|LoadAndRemap|DistributedSave)\w*",
            r"(Read|Write)File|MatchingFiles|FileSystem\w+|ImmutableConst|GenerateVocabRemapping",
            r"\w*Summary(V2|Writer|DbWriter|FileWriter)?|ImportEvent|Timestamp",
            r"InitializeTableFrom\w+",
        ),
    ),
    Family(
        "Optimizers and updates of weights",
        "weights do not change while a model is served; assigning to one is refused as an effect",
        (
            r"(Resource)?(Sparse)?Apply\w+",
            r"(Resource)?(Scatter(Nd)?(Add|Div|Max|Min|Mul|Sub|Update))|ScatterNdNonAliasingAdd",
            r"Assign(Add|Sub)?(VariableOp)?|(Resource)?StridedSliceAssign|(Resource)?CountUpTo|DestroyResourceOp",
            r"Sdca\w+|Inplace(Add|Sub|Update)|ParallelConcat",
        ),
    ),
    Family(
        "Variables and tables of TensorFlow 1, and their making",
        "a model's variables and tables are made before it is traced",
        (
            r"Variable(V2)?|TemporaryVariable|DestroyTemporaryVariable|IsVariableInitialized|VarIsInitializedOp",
            r"(Anonymous)?(Mutable)?(Dense)?HashTable(OfTensors)?(V2)?|InitializeTable(V2)?",
            r"LookupTable(Export|Import|Insert|Remove)(V2)?|LookupTable(Find|Size)|RefIdentity",
            r"GuaranteeConst|VarHandleOp|Placeholder\w*|FakeParam|FakeQueue",
        ),
    ),
    Family(
        "Control flow and arrays of TensorFlow 1",
        "a function is traced with If, While, Case and tensor lists; graphs of TensorFlow 1 are lowered forms of them",
        (
            r"(Ref)?(Enter|Exit|NextIteration|Merge|Switch)|RefSelect|LoopCond|ControlTrigger",
            r"TensorArray(V2|V3)?|SymbolicGradient|For|MapDefun",
            r"TensorArray(Close|Concat|Gather|Grad|GradWithShape|Pack|Read|Scatter|Size|Split|Unpack|Write)(V2|V3)?",
        ),
    ),
    Family(
        "cuDNN and oneDNN",
        "TensorFlow's optimizers put them into graphs for such devices; recurrent layers are traced as loops",
        (r"Cudnn\w+|_?Mkl\w+",),
    ),
    Family(
        "Generators with a state",
        "the state is a variable that every draw changes",
        (r"Stateful(Random|StandardNormal|TruncatedNormal|Uniform)\w*|Rng\w+|NonDeterministicInts",),
    ),
    Family(
        "Forms that TensorFlow has withdrawn",
        "the current runtime refuses to make them, or no public function does any more",
        (
            r"Batch(Cholesky|CholeskyGrad|I?FFT[23]?D?|Matrix\w+|SelfAdjointEig(V2)?|Svd)",
            r"BatchNormWithGlobalNormalization(Grad)?|AdjustContrast|MatrixExponential|SelfAdjointEig|TileGrad",
            r"Conv3DBackprop(Filter|Input)|RandomPoisson|Skipgram|QuantizeAndDequantize|RandomCrop|TopK",
        ),
    ),
)


def family_of(op: str) -> Family | None:
    """Return the family that leaves ``op`` out, or None: the page has to classify it."""
    return next((family for family in FAMILIES if family.takes(op)), None)
