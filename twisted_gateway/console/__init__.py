"""What the console scripts share: command lines, standard streams, and being interrupted."""
