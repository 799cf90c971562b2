"""What the Makefile calls, in rooms. Nothing in here is needed to read or run a stage.

Imports go one way: pages -> bench -> lab -> run.
"""
