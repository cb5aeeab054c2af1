"""The HTTP/1.1 client for engines: an IAgent with a pool, made for a gateway."""
