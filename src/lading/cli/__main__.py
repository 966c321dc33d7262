"""``python -m lading.cli``: the command without its script."""

from lading.cli import main

if __name__ == "__main__":
    main()
