"""The break-it lab: `make exercise`, `try`, `check`, `watch`, `hint`, `solution`."""
