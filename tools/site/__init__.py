"""The site: `make site`, the repository's pages as Sphinx builds them.

conf        Sphinx's settings
additions   what the site adds to a page while it is read
calculator  each way to cut on a choice of machines, on the page SCALING
playground  the page on which stage 4 trains in the browser: `make playground`
learn, notebooks, playground, side_by_side  four pages that only the site needs

It imports from pages, bench, lab and run.
"""
