"""A job's rate: which CRF each segment needs so that the whole film has the requested rate or size."""
