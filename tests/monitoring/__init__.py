"""Alerts and dashboard: that they speak of what there is."""
