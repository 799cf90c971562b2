"""The site: `make site`, the repository's pages as Sphinx builds them."""
