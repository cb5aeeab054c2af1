"""Real gateway processes, real HTTP, and a simulated engine that is sped up: W1 and W5, measured.

    python -m bench replicas --out docs           # all of it, about 20 minutes
    python -m bench replicas --quick              # three setups, smaller: 4 minutes, no verdict
    python -m bench replicas W1 --setups none,peers --w1-seeds 5 --out /tmp/figures

Read downward: `setups` (what is compared, and their configurations), `stack` (processes),
`measure` (one run and its figures), `report` (what is printed and written), `lanes` (a picture
of who waited and who was served; `bench/w1.py` draws the README's with it).
"""
