"""The commands of make, in packages. No stage needs anything in here.

__main__  runs a command: its function, and the variables it gets
asked     reads what was typed after make, and refuses unknown words
maintain  the commands for those who change something
limits    has anything outgrown its limit?

Imports go one way: site -> pages -> bench or lab -> run.
"""
