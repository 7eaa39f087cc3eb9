"""Sound and subtitles: decoded, converted, encoded."""
