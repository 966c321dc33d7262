"""Write JASPER directories from embeddings, pairs and clusters."""
