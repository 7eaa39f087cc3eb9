"""Packages proven renditions for players: CMAF files with HLS playlists and a DASH manifest."""
