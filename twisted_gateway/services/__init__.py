"""The services behind X-Service: one module for each kind, behind the protocol of adapter.py."""
