"""Plans a job: cuts and ranges, picture format, encoder, devices. ``plan.py`` is the entry point."""
