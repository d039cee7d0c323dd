"""Models of convolutions, in TensorFlow's layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["MODELS"]

Tensors = Mapping[str, Any]


def _conv(features: Any, kernel: Any, *, stride: int = 1, groups: int = 1) -> Any:
    return jax.lax.conv_general_dilated(
        features,
        kernel,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def _convnet(w: Tensors, x: Tensors) -> dict[str, Any]:
    features = jax.nn.relu(_conv(x["image"][None], w["k1"]) + w["c1"])
    features = jax.nn.relu(_conv(features, w["k2"]) + w["c2"])
    features = jax.lax.reduce_window(features, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    hidden = jax.nn.relu(features.reshape(-1) @ w["w1"] + w["b1"])
    return {"probabilities": jax.nn.softmax(hidden @ w["w2"] + w["b2"])}


#: Source: M. Sandler et al., "MobileNetV2", 2018, table 2: expansion, channels, repeats, stride of the first.
_BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def _mobilenet(w: Tensors, x: Tensors) -> dict[str, Any]:
    def norm(name: str, features: Any) -> Any:
        scale = w[f"{name}/gamma"] * jax.lax.rsqrt(w[f"{name}/moving_variance"] + 1e-3)
        return features * scale + (w[f"{name}/beta"] - w[f"{name}/moving_mean"] * scale)

    def depthwise(name: str, features: Any, stride: int) -> Any:
        kernel = w[f"{name}/kernel"].transpose(0, 1, 3, 2)
        return _conv(features, kernel, stride=stride, groups=features.shape[-1])

    def block(prefix: str, features: Any, *, expansion: int, stride: int) -> Any:
        start = features
        if expansion > 1:
            features = _conv(features, w[f"{prefix}expand/kernel"])
            features = jax.nn.relu6(norm(f"{prefix}expand_BN", features))
        features = depthwise(f"{prefix}depthwise", features, stride)
        features = jax.nn.relu6(norm(f"{prefix}depthwise_BN", features))
        features = norm(f"{prefix}project_BN", _conv(features, w[f"{prefix}project/kernel"]))
        return features + start if features.shape == start.shape else features

    features = jax.nn.relu6(norm("bn_Conv1", _conv(x["image"][None], w["Conv1/kernel"], stride=2)))
    index = 0
    for expansion, _, repeats, first_stride in _BLOCKS:
        for repeat in range(repeats):
            prefix = f"block_{index}_" if index else "expanded_conv_"
            features = block(prefix, features, expansion=expansion, stride=1 if repeat else first_stride)
            index += 1
    features = jax.nn.relu6(norm("Conv_1_bn", _conv(features, w["Conv_1/kernel"])))
    scores = jnp.mean(features, (0, 1, 2)) @ w["predictions/kernel"] + w["predictions/bias"]
    return {"probabilities": jax.nn.softmax(scores)}


#: Takes the weights and one example's inputs.
MODELS: dict[str, Callable[[Tensors, Tensors], dict[str, Any]]] = {"convnet": _convnet, "mobilenet_v2": _mobilenet}
