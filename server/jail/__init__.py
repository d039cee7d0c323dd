"""A process that can do no harm: namespaces, another user, limits, a filter of system calls.

Knows nothing of models and builds. ``Jail`` turns a command into one that is jailed; ``find_jail`` finds the best way
that this machine has, by trying. Linux only; the standard library alone, as part of it runs before anything else does.
"""

from __future__ import annotations

from server.jail.account import Account, make_plain
from server.jail.jail import Jail, Means, find_jail
from server.jail.limits import JailLimits
from server.jail.trial import PROMISES
from server.jail.view import View, existing

__all__ = ["PROMISES", "Account", "Jail", "JailLimits", "Means", "View", "existing", "find_jail", "make_plain"]
