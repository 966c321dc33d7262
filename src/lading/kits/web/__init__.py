"""Runs in a browser: pages that are values, charts, templates, the report as one file, the site."""
