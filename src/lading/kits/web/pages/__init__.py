"""What each page of ``lading ui`` and of the report tells, as plain values: the ``.json`` twins."""
