"""Models with loops, and the transformer encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["MODELS"]

Tensors = Mapping[str, Any]


def _lstm(w: Tensors, x: Tensors) -> dict[str, Any]:
    from_inputs = x["strips"] @ w["inputs"] + w["bias"]

    def step(at: Any, state: Any) -> Any:
        hidden, cell = state
        keep, write, read, news = jnp.split(from_inputs[at] + hidden @ w["hidden"], 4)
        cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(write) * jnp.tanh(news)
        return jax.nn.sigmoid(read) * jnp.tanh(cell), cell

    zeros = jnp.zeros(w["hidden"].shape[0])
    hidden, _ = jax.lax.fori_loop(0, x["length"], step, (zeros, zeros))
    return {"features": jnp.tanh(hidden @ w["head"])}


def _tree_lstm(w: Tensors, x: Tensors) -> dict[str, Any]:
    n_units, most = w["head"].shape[0], len(x["words"])
    write, read, _, _, news = jnp.split(w["words"][x["words"]] @ w["inputs"] + w["bias"], 5, axis=1)
    cells = jax.nn.sigmoid(write) * jnp.tanh(news)
    leaves = jnp.concatenate([jax.nn.sigmoid(read) * jnp.tanh(cells), cells], 1)

    def step(inner: Any, states: Any) -> Any:
        hidden_l, cell_l = jnp.split(states[x["left"][inner]], 2)
        hidden_r, cell_r = jnp.split(states[x["right"][inner]], 2)
        gates = jnp.concatenate([hidden_l, hidden_r]) @ w["children"] + w["bias"]
        write, read, keep_l, keep_r, news = jnp.split(gates, 5)
        kept = jax.nn.sigmoid(keep_l) * cell_l + jax.nn.sigmoid(keep_r) * cell_r
        cell = jax.nn.sigmoid(write) * jnp.tanh(news) + kept
        return states.at[most + inner].set(jnp.concatenate([jax.nn.sigmoid(read) * jnp.tanh(cell), cell]))

    start = jnp.concatenate([leaves, jnp.zeros((most - 1, 2 * n_units))])
    states = jax.lax.fori_loop(0, x["n_leaves"] - 1, step, start)
    root = states[jnp.where(x["n_leaves"] > 1, most + x["n_leaves"] - 2, 0), :n_units]
    return {"probabilities": jax.nn.softmax(root @ w["head"])}


def _greedy_decoder(w: Tensors, x: Tensors) -> dict[str, Any]:
    most, end, start, impatience = 24, 0, 1, 0.35
    is_end = jax.nn.one_hot(end, w["head"].shape[1])

    def step(state: Any) -> Any:
        at, token, hidden, tokens = state
        reset_x, update_x, news_x = jnp.split(w["words"][token] @ w["inputs"] + w["bias"], 3)
        reset_h, update_h, news_h = jnp.split(hidden @ w["hidden"], 3)
        update = jax.nn.sigmoid(update_x + update_h)
        news = jnp.tanh(news_x + jax.nn.sigmoid(reset_x + reset_h) * news_h)
        hidden = update * hidden + (1 - update) * news
        token = jnp.argmax(hidden @ w["head"] + is_end * (at * impatience)).astype(jnp.int32)
        return at + 1, token, hidden, tokens.at[at].set(token)

    state = (jnp.int32(0), jnp.int32(start), x["context"], jnp.zeros(most, jnp.int32))
    at, _, _, tokens = jax.lax.while_loop(lambda state: (state[1] != end) & (state[0] < most), step, state)
    return {"tokens": tokens, "n_tokens": at}


def _encoder(w: Tensors, x: Tensors) -> dict[str, Any]:
    heads = 4
    n_tokens, width = w["places"].shape
    is_word = jnp.arange(n_tokens) < x["length"]
    mask = jnp.where(is_word, 0.0, -1e9)
    state = w["words"][x["tokens"]] + w["places"]

    def norm(values: Any, part: str) -> Any:
        centred = values - jnp.mean(values, -1, keepdims=True)
        variance = jnp.mean(jnp.square(centred), -1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-6) * w[f"scale_{part}"] + w[f"shift_{part}"]

    layer = 0
    while f"qkv{layer}" in w:
        parts = (norm(state, f"a{layer}") @ w[f"qkv{layer}"]).reshape(n_tokens, 3, heads, width // heads)
        q, k, v = parts.transpose(1, 2, 0, 3)
        scores = q @ k.swapaxes(-1, -2) * (width // heads) ** -0.5 + mask
        mixed = (jax.nn.softmax(scores) @ v).transpose(1, 0, 2)
        state += mixed.reshape(n_tokens, width) @ w[f"out{layer}"]
        inner = jax.nn.gelu(norm(state, f"b{layer}") @ w[f"up{layer}"] + w[f"up_bias{layer}"], approximate=True)
        state += inner @ w[f"down{layer}"] + w[f"down_bias{layer}"]
        layer += 1
    counted = is_word.astype(jnp.float32)
    return {"features": jnp.tanh(counted @ state / jnp.sum(counted) @ w["head"])}


#: Takes the weights and one example's inputs.
MODELS: dict[str, Callable[[Tensors, Tensors], dict[str, Any]]] = {
    "lstm": _lstm,
    "tree_lstm": _tree_lstm,
    "greedy_decoder": _greedy_decoder,
    "encoder": _encoder,
}
