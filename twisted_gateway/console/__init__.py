"""What the console scripts share: values of the command line, the terminal, being interrupted."""
