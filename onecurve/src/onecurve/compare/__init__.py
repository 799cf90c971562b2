"""Run a script in several ways and compare the runs."""
