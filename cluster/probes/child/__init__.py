"""Questions asked in a child process, with a time limit."""
