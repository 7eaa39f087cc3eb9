"""Decodes, converts and encodes audio and subtitles."""
