"""The site: `make site`, the repository's pages as Sphinx builds them.

conf        Sphinx's settings
additions   what the site adds to a page while it is read
learn, notebooks, side_by_side  three pages that only the site needs

It imports from pages, lab and run.
"""
