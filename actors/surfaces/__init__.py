"""What a picture is, on the host or on a device: formats, memory layouts, and the values that hold them."""
