"""Programs as the users of each framework write and start them, run through the command line."""
