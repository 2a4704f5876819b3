"""The code that pages show: found in their Markdown, and run as a reader would run it."""
