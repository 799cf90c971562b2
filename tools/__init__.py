"""The make commands, grouped into packages. The stages import nothing from here.

Imports go one way: site -> pages -> bench or lab -> run.
"""
