"""The check of a live gateway: `llm-gateway-check`, for people, pipelines and a Kubernetes Job."""
