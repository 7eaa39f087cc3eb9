"""Two files compared, without the code that made them."""
