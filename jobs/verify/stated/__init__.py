"""What a container states, read from its own boxes and elements: a second opinion beside FFmpeg's."""
