"""What a batch keeps of each file: its states, and the database that holds them."""
