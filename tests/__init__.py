"""The tests mirror the package; `support` is their only helper."""
