"""A transcode job from plan to report."""
