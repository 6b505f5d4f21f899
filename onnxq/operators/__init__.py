"""Facts about operators: kinds, weight axes, integer operators, windows."""
