"""The ``codecfleet`` command line: its commands, signals and exit codes."""
