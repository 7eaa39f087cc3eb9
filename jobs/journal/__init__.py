"""The journal of a job: from it, a job that was killed goes on."""
