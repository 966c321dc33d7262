"""From a sentence to the documents that hold it, and to the updates that learned from them."""
