"""The site: the repository's pages, built by Sphinx. It imports from pages and run."""
