"""A job's rate: which CRF each segment needs so that the whole film has the rate or the size that was asked for."""
