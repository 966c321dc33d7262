"""Claims about a model, signed, and proofs that rest on them: for people who have neither our data nor our word."""
