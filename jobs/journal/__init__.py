"""The journal of a job, from which a killed job continues."""
