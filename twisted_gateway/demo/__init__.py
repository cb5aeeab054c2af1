"""Simulated engines on loopback, for trying the gateway with nothing else installed."""
