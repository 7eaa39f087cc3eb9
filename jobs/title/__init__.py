"""A ladder that suits its film: probes of the film, the convex hull of their results, and renditions from the hull."""
