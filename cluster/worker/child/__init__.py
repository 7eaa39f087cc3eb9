"""A worker that is a child process: its program, what that is asked, and how it is seen from the parent."""
