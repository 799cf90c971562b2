"""Give a rank batches: its own, all ranks' merged, or another rank's."""
