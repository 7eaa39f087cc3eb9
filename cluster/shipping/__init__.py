"""Local files of a job's machine, read by workers on machines that do not see them."""
