"""Record what a rank does as events."""
