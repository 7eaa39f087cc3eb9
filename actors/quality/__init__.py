"""The search for the CRF with which a segment reaches a quality, and its measurement."""
