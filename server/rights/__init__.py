"""Who may do what: tokens and what they grant, how often, and a log of what was done. No HTTP is in here.

Start reading at ``entry`` (what a file says of a token), then ``grants`` (what that means) and ``keyring`` (who is it).
"""

from server.rights.audit import AuditLog, AuditRecord
from server.rights.entry import Scope, TokenEntry
from server.rights.expiry import ExpiryNotices, parse_expiry, shown_date
from server.rights.grants import ANYBODY, LOCAL, Grant
from server.rights.keyring import Keyring
from server.rights.rates import Rate, Rates
from server.rights.tokens import digest_of, is_token, new_token
from server.rights.tokens_file import add_token, read_tokens, revoke_token

__all__ = [
    "ANYBODY",
    "LOCAL",
    "AuditLog",
    "AuditRecord",
    "ExpiryNotices",
    "Grant",
    "Keyring",
    "Rate",
    "Rates",
    "Scope",
    "TokenEntry",
    "add_token",
    "digest_of",
    "is_token",
    "new_token",
    "parse_expiry",
    "read_tokens",
    "revoke_token",
    "shown_date",
]
