"""Options of ``rowwise serve``: where models are kept, and how many."""

from __future__ import annotations

from rowwise.cli.serve_options.option import ServeOption

__all__ = ["STORE"]

_PANEL = "Store"

STORE = (
    ServeOption(
        "store",
        str,
        "--store",
        "Directory of the model store (rowwise-store), or a bucket that several servers share: s3://BUCKET/PREFIX.",
        panel=_PANEL,
        metavar="DIR|URL",
    ),
    ServeOption(
        "bucket",
        str,
        "--bucket",
        "The same bucket, where --store names this server's own directory beside it.",
        panel=_PANEL,
        metavar="URL",
    ),
    ServeOption(
        "follow_store",
        bool,
        "--follow-store/--own-store",
        "Whether --store is another server's directory, which is served and never changed (no).",
        panel=_PANEL,
    ),
    ServeOption(
        "follow_s",
        float,
        "--follow-s",
        "Time between looks at a bucket, or a store that is followed (5).",
        panel=_PANEL,
        metavar="SECONDS",
    ),
    ServeOption(
        "verify_store",
        bool,
        "--verify-store/--trust-store",
        "Whether every artifact is read at start and must be what was built (no).",
        panel=_PANEL,
    ),
    ServeOption(
        "keep_versions",
        int,
        "--keep-versions",
        "Versions of a model that are kept besides those in use (all); older ones are deleted.",
        panel=_PANEL,
        metavar="N",
    ),
    ServeOption(
        "max_versions", int, "--max-versions", "Most versions of a model; more get 507.", panel=_PANEL, metavar="N"
    ),
    ServeOption(
        "max_model_bytes",
        int,
        "--max-model-bytes",
        "Most bytes of a model's artifacts; more get 507.",
        panel=_PANEL,
        metavar="BYTES",
    ),
    ServeOption(
        "max_store_bytes",
        int,
        "--max-store-bytes",
        "Most bytes of all artifacts; more get 507.",
        panel=_PANEL,
        metavar="BYTES",
    ),
)
