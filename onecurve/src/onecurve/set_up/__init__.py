"""Let a script run here: on CPUs, in float64, without FSDP."""
