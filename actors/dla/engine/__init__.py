"""cuDLA: sessions, tasks, tensors and the watchdog."""
