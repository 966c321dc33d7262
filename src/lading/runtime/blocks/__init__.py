"""Work in numbered blocks: one function of a number, run by local processes, Ray, or numbered tasks."""
