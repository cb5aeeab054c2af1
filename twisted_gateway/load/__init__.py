"""The load test: `llm-gateway-load` and the workloads that it shares with the simulator."""
