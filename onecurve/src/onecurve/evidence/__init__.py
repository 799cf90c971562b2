"""A run's events (`seen`), and what several rules read in them."""
