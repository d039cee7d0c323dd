"""The models of the race with other servers, for one example, from the weights that all of them load.

The race prepares the weights; the directory that it lives in is named by the variable RACE.
"""

__all__: list[str] = []
