"""What a batch is to do: the files that its inputs hold, the names of their outputs, and their options."""
