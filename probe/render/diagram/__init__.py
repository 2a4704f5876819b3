"""The block diagram: a shape of the record, laid out and written as SVG."""
