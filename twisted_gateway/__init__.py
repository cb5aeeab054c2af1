"""An LLM and API gateway on Twisted: admission by the engine's own scheduler gauges."""

__version__ = "0.1.0"
