"""The demo: train on real text of this machine, crash, resume, and ask what was in it."""
