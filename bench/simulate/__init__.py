"""The real `core/gate.py` before a model of an engine, in simulated time.

    python -m bench simulate --out docs         # W1 to W6, every policy: tables, a page, pictures
    python -m bench simulate W1 W5 --seeds 21 --policies none,peers --out /tmp/figures

Read downward: `timeline` (time), `engine` (the model), `clients` (who asks, and the faults),
`replicas` (what a gateway is to them) and its kinds `baselines`, `oracle` and `ours`, `policies`
(by name), `figures` (of a finished run), `runs` (many of them), `report` and `chart` (what is
printed, written and drawn).
"""
