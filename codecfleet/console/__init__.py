"""The output of commands on terminals, in logs and as JSON."""
