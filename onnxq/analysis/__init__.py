"""Questions about a graph: where quantizers belong, which ranges follow, how large sums get."""
