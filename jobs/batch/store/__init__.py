"""The states of a batch's files, and the database that holds them."""
