"""HTTP: the site, the LLM request path, the operations endpoints."""
