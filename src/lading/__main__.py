"""``python -m lading``: the same as the ``lading`` command."""

from lading.cli import main

if __name__ == "__main__":
    main()
