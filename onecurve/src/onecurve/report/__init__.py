"""Drop harmless findings, point to the lines that cause the others, and print them."""
