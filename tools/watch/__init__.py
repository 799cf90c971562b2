"""What sees into the ranks of a run: for the lab and for the inspector.

replace      puts a function around an attribute of PyTorch or Python
events       what a rank writes down, and how it is read again
collectives  which collectives a rank calls, and where two ranks part
"""
