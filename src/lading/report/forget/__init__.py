"""A model that never had it: what must be forgotten, from where to replay, and what can be certified afterwards."""
