"""Who may: bearer tokens checked against the issuer's keys, and the gateway's own token."""
