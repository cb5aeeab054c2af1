"""The whole stack against real parts: vLLM, nginx, official clients."""
