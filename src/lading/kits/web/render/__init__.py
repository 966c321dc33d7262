"""What a person sees of a run: text for terminals, one page, charts."""
