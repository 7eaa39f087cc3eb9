"""The supervisor's process, which carries out decisions."""
