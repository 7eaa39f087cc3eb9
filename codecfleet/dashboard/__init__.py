"""``codecfleet dashboard``: a read-only web page that shows a fleet."""
