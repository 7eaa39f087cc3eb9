"""What a worker offers: a device's interface, its sessions, and the work it is given."""
