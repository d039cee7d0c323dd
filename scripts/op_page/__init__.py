"""docs/ops.md: what the vectorizer does with each op, found out by converting it."""
