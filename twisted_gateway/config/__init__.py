"""The configuration: one YAML file, parsed once into frozen values."""
