"""From what a job asks of an encoder to its exact settings, or a refusal."""
