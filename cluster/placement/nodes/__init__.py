"""From probe reports to an inventory."""
