"""The models of the race with other servers, for one example, from the weights that all of them load.

The race prepares the weights in the directory that it lives in. Models find what they keep in ROWWISE_CACHE, which
names it here: builders know no other variable of ours.
"""

__all__: list[str] = []
