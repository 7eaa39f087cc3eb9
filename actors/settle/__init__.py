"""From a job's request for an encoder to its exact settings, or a refusal."""
