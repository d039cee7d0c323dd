"""Derivatives of a function of one example, batched over rows and vectorized over their elements.

::

    from vectorizer import Derivative, jacobian, vectorize

    model = vectorize(predict, inputs=inputs, derivatives=[Derivative(kind="jacobian", wrt="x")])
    model.derivatives["jacobian"](x=many_examples)      # [n, *y, *x]
    jacobian(predict, inputs=inputs, wrt="x")(x=many)   # the same in one call

A Jacobian is two vectorizations, one inside the other: pulling back one element of the output is vectorized over
all elements, with the forward pass shared, which gives a graph of one example; that one is vectorized over the rows.
"""

from __future__ import annotations

from vectorizer.derivatives.compiled import Setting, compile_derivatives
from vectorizer.derivatives.declaration import Derivative

__all__ = ["Derivative", "Setting", "compile_derivatives"]
