"""A ladder that suits its film: trial encodes (probes), the convex hull of their results, renditions from the hull."""
