"""Real per-example models, one short file each: the best examples of how to write one.

A model is a module with

- ``predict(**inputs)``: ONE example in, a dict of named outputs out; ordinary Python, ``if`` and ``while`` included;
- ``INPUTS``: the ``tf.TensorSpec`` of each input, without a batch dimension, None where the length varies;
- ``SPEC`` (optional): what a registration needs to know besides, as in ``PUT /v1/models/{m}``;
- ``examples()``: real inputs, as NumPy arrays.

Nothing here knows that it will be batched. Start with ``digits.py``; then ``lstm.py`` for variable lengths and
``implied_volatility.py`` for branches and loops that depend on the data; ``option_price.py`` declares derivatives.
"""

__all__: list[str] = []
