"""Tests of the same-named part of the package."""
