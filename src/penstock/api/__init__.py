"""What an application's author writes: sources, operators, sinks, and the dataflow that joins them."""
