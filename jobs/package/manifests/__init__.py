"""Writes the manifests of a package: HLS playlists and a DASH manifest."""
