"""What commands call in the product, and what they ask for and get."""
