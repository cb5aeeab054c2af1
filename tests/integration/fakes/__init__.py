"""Services of which there are no real ones to be had, on real sockets."""
