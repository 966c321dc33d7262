"""What Lading needs of interpreter and machine: lazy doors, compiled kernels, threads, durable files, arrays."""
