"""``codecfleet dashboard``: a fleet on one web page that is only read."""
