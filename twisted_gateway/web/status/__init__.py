"""The status page for people."""
