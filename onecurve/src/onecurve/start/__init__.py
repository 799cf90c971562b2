"""Start a run's ranks, watch them and end them."""
