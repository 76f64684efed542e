"""What the author of an application writes: sources, operators, sinks, and the dataflow that connects them."""
