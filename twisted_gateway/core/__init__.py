"""Pure decisions: no clock, no randomness, no socket, no Twisted."""
