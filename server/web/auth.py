"""Who may do what: by a token, or without any the machine's own users and no browser.

The order of questions, everywhere: does the request mean this server (``origins``), who is it (``Keyring``), may he do
such things at all, on a model of that name, and so soon. Each is answered before anything is looked up, so that a
refusal tells nothing of what there is: a model out of reach is 403 whether or not it exists.

Where predictions are open, whoever sends one is not asked for a token, and a token that he sends is not looked at.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from server.rights import (
    ANYBODY,
    LOCAL,
    AuditLog,
    AuditRecord,
    ExpiryNotices,
    Grant,
    Keyring,
    Rate,
    Rates,
    shown_date,
)
from server.settings import Settings
from server.web.errors import Forbidden, RateLimited, TokenExpired, Unauthorized, WebError
from server.web.origins import Headers, check_host, check_local
from server.web.scopes import PREDICT, Rule

__all__ = ["Gate", "Grant", "allow"]

_log = logging.getLogger("rowwise")

Peer = tuple[str, int] | None


class Gate:
    """Lets requests pass, or raises. ``rates``: the buckets that processes share; None: there is one process.

    ``on_audit_failure`` is called for each line that the audit log lacks; ``wall_clock`` gives Unix time, by which
    tokens end.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        rates: Rates | None = None,
        on_audit_failure: Callable[[], object] = lambda: None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Errors: ValueError with the reason, for tokens or an audit log that can't be used."""
        self._rates = Rates() if rates is None else rates
        #: Where it is written what was done.
        self.audit = AuditLog(settings.audit_log, on_failure=on_audit_failure)
        #: Called when what somebody may do has changed: who remembers answers has to forget them.
        self.on_change: list[Callable[[], None]] = []
        self._path: Path | None = None
        self._seen: object = None
        self._wall_clock = wall_clock
        self._notices = ExpiryNotices()
        #: Tokens that were told to have ended to those who remember answers.
        self._ended: frozenset[str] = frozenset()
        self._take(settings, self._read(settings))

    def change(self, settings: Settings) -> None:
        """Go by other settings from now on; tokens that can't be read leave those in force, and the log says why."""
        try:
            keyring = self._read(settings)
        except ValueError as error:
            _log.error("the tokens stay as they are: %s", error)
            return
        self._take(settings, keyring)

    def renew(self) -> None:
        """Read the file of tokens again, and go on in a new audit log."""
        self.audit.reopen()
        self.change(self._settings)

    def look(self) -> None:
        """Read the file of tokens again if it has changed, and see whose time is over."""
        if self._path is not None and _state(self._path) != self._seen:
            self.change(self._settings)
        self._look_at_calendar()

    def _look_at_calendar(self) -> None:
        ending = self._keyring.ending
        if not ending:
            return
        now_s = self._wall_clock()
        for sentence in self._notices.due(ending, now_s=now_s):
            _log.warning("%s", sentence)
        ended = frozenset(grant.name for grant in ending if grant.has_ended(now_s))
        if ended != self._ended:
            self._ended = ended
            for tell in self.on_change:
                tell()

    def _read(self, settings: Settings) -> Keyring:
        self._seen = None if settings.tokens_file is None else _state(settings.tokens_file)
        return Keyring.read(
            token=None if settings.token is None else settings.token.get_secret_value(),
            entries=settings.tokens,
            path=settings.tokens_file,
            rates=self._rates,
        )

    def _take(self, settings: Settings, keyring: Keyring) -> None:
        self._settings = settings
        self._path = settings.tokens_file
        self._keyring = keyring
        self._names = frozenset(name.lower() for name in settings.host_names)
        protects = settings.protect_predict
        #: Whether predictions need a right.
        self.protects_predictions = keyring.has_scoped if protects is None else protects
        #: Whether predictions are looked at at all.
        self.guards_predictions = self.protects_predictions or bool(self._names)
        #: Whether that is decided by more than a request's head.
        self.looks_at_peers = self.protects_predictions and not keyring.is_configured
        if settings.tokens_file is not None:
            _log.info("tokens in force: %s", ", ".join(keyring.names) or "none")
        for tell in self.on_change:
            tell()

    # Asking.

    def admit(self, rule: Rule, headers: Headers, client: Peer, *, is_post: bool = False) -> Grant:
        """Return who asks, if he may do such things. ``headers`` have small letters, and can be gone through twice.

        ``is_post``: a form in a browser could have sent it. Errors: Unauthorized where a token would help, Forbidden
        where none can, RateLimited.
        """
        if self._names and rule.bits:
            check_host(headers, names=self._names)
        if not rule.bits or (rule.is_open_with_predictions and not self.protects_predictions):
            return ANYBODY
        if not self._keyring.is_configured:
            check_local(headers, client, names=self._names, is_post=is_post, has_console=self._settings.console)
            return LOCAL
        grant = self._identify(headers)
        if not rule.bits & grant.bits:
            held = " and ".join(sorted(grant.scopes))
            raise Forbidden(f"token {grant.name!r} may {held}, which is not enough to {rule.does} here", who=grant.name)
        if rule.needs_all_models and not grant.is_unrestricted:
            raise Forbidden(f"token {grant.name!r} is for some models only, and this tells of all", who=grant.name)
        if rule.is_counted and grant.managing is not None:
            _take_one(grant.managing, grant, "requests")
        return grant

    def predict(self, headers: Headers, client: Peer, model: str) -> Rate | None:
        """Let a prediction pass, and return what its rows beyond the first are charged to; None: to nothing.

        Errors: Unauthorized, Forbidden, RateLimited.
        """
        grant = self.admit(PREDICT, headers, client)
        allow(grant, model, PREDICT)
        if grant.predicting is not None:
            _take_one(grant.predicting, grant, "rows")
        return grant.predicting

    def _identify(self, headers: Headers) -> Grant:
        was_offered = False
        for name, value in headers:
            if name == b"authorization":
                scheme, _, credentials = value.partition(b" ")
                if scheme.lower() != b"bearer":
                    continue
                offered = credentials.strip()
            elif name == b"x-api-key":
                offered = value.strip()
            else:
                continue
            was_offered = True
            grant = self._keyring.find(offered)
            if grant is None:
                continue
            if grant.ends_s is not None and grant.has_ended(self._wall_clock()):
                raise TokenExpired(grant.name, shown_date(grant.ends_s))
            return grant
        if was_offered:
            raise Unauthorized("the token is not the right one")
        raise Unauthorized("a token is needed: send 'Authorization: Bearer TOKEN' or 'X-API-Key: TOKEN'")

    # Telling.

    def refused(
        self, error: WebError | Exception, *, what: str, host: str | None, request_id: str, model: str | None = None
    ) -> None:
        """Write that somebody was sent away, if that is what an error says."""
        if isinstance(error, Unauthorized | Forbidden | RateLimited):
            record = AuditRecord(who=error.who, what=what, model=model, host=host, request_id=request_id)
            self.audit.refused(record, type(error).__name__)


def allow(grant: Grant, model: str, rule: Rule) -> None:
    """Let somebody pass whose rights reach to a model of that name, whether or not there is one. Errors: Forbidden."""
    if not grant.covers(model):
        raise Forbidden(f"token {grant.name!r} has no right to {rule.does} model {model[:120]!r}", who=grant.name)


def _take_one(rate: Rate, grant: Grant, unit: str) -> None:
    wait_s = rate.take()
    if wait_s:
        raise RateLimited(grant.name, unit, retry_after_s=wait_s)


def _state(path: Path) -> object:
    """Return what changes when a file does."""
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_size, found.st_mtime_ns
