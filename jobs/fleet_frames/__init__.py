"""``Fleet.frames``: batches of frames that a fleet's workers make for another machine."""
