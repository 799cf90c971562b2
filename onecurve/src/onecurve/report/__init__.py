"""Print findings at the lines that cause them."""
