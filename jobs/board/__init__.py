"""Where each segment stands, and the loop that moves it on."""
