"""What sees into the ranks of a run: for the lab and for the inspector.

recorder     writes down what a rank does: steps, networks, DDP, collectives
events       where it is written, and how it is read again
collectives  which collectives there are, and where two ranks part
replace      puts a function around an attribute of PyTorch or Python
"""
