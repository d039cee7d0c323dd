"""SavedModels as TensorFlow wrote them in other days."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer._pfor import SavedModelProto

__all__ = ["WORDS", "give_optimizer_slots", "save_module", "save_session"]

WORDS = {b"a": 1, b"row": 2, b"wise": 3}


def give_optimizer_slots(saved_model: Path) -> None:
    """Add the slot of an optimizer to the object graph, which keeps ``tf.saved_model.load`` from restoring it."""
    file = saved_model / "saved_model.pb"
    proto = SavedModelProto.FromString(file.read_bytes())
    root = proto.meta_graphs[0].object_graph_def.nodes[0]
    numbers = {child.local_name: child.node_id for child in root.children}
    root.slot_variables.add(
        original_variable_node_id=numbers["weights"], slot_name="momentum", slot_variable_node_id=numbers["momentum"]
    )
    file.write_bytes(proto.SerializeToString())


class Scorer(tf.Module):
    """Words and numbers in batches of any size: a table, a variable that is shared, nested functions, control flow."""

    def __init__(self) -> None:
        self.weights = tf.Variable(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32), name="weights")
        self.momentum = tf.Variable(tf.zeros([4, 3]), trainable=False, name="weights/momentum")
        self.counts = tf.Variable([1, 2, 3], trainable=False, name="counts")
        content = tf.lookup.KeyValueTensorInitializer(list(WORDS), list(WORDS.values()), tf.string, tf.int64)
        self.table = tf.lookup.StaticHashTable(content, default_value=-1)

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def hidden(self, x: tf.Tensor) -> tf.Tensor:
        y = x @ self.weights
        for step in tf.range(3):
            y = tf.tanh(y) + tf.cast(step, tf.float32) * 0.1
        return y

    @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x"), tf.TensorSpec([None], tf.string, name="word")])
    def serve(self, x: tf.Tensor, word: tf.Tensor) -> dict[str, tf.Tensor]:
        score = self.hidden(x) * tf.cast(self.counts, tf.float32)
        twice = tf.map_fn(lambda row: tf.cond(row[0] > 0, lambda: row * 2.0, lambda: row - 1.0), score)
        return {"score": score, "twice": twice, "word": self.table.lookup(word)}


def save_module(path: Path) -> Scorer:
    """Save a module whose signature ``serving_default`` takes batches of any size."""
    module = Scorer()
    tf.saved_model.save(module, str(path), signatures=module.serve)
    return module


def save_session(path: Path, body: Any, *, inputs: dict[str, tf.TensorSpec]) -> None:
    """Save what ``body`` makes of placeholders as TensorFlow 1 did: a graph, a session, no objects."""
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        given = {name: tf.compat.v1.placeholder(spec.dtype, spec.shape, name=name) for name, spec in inputs.items()}
        outputs = body(**given)
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()])
        builder = tf.compat.v1.saved_model.Builder(str(path))
        signature = tf.compat.v1.saved_model.predict_signature_def(inputs=given, outputs=outputs)
        builder.add_meta_graph_and_variables(
            session,
            [tf.saved_model.SERVING],
            signature_def_map={"serving_default": signature},
            main_op=tf.compat.v1.tables_initializer(),
        )
        builder.save()
