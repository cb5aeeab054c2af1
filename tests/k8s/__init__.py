"""The manifests in k8s: that they mean the gateway as it is."""
