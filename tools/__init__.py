"""The commands of make, in packages. No stage needs anything in here.

Imports go one way: site -> pages -> bench or lab -> run.
"""
