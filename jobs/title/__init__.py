"""A ladder that suits its film: probes of it, the convex hull of their results, and the renditions chosen from it."""
