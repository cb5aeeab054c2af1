"""Sandboxes for sessions: a pod, a Service and a workspace each, on Kubernetes."""
